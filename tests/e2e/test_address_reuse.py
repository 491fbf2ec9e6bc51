"""A private address is free as soon as its instance is gone, whatever the kernel still keeps of the old guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.lab import UPLINK_HOST, Lab, fetch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_an_address_is_given_away_while_the_old_network_lingers(lab: Lab) -> None:
    """Connections that nobody ends keep a guest's network for minutes; the next guest gets the address at once."""
    lab.allow({"name": "api", "filters": {"ports": ["6443"], "protocols": [{"type": "tcp"}]}})
    lab.create("first")
    address = lab.private_address("first")
    pid = lab.docker("inspect", "--format", "{{.State.Pid}}", lab.container("first"))
    # As long as the file is open the network is there, like one with connections in it.
    with Path(f"/proc/{pid}/ns/net").open("rb"):
        lab.delete("first")
        lab.create("second")

        assert lab.private_address("second") == address
        lab.await_console("second", "ready")
        assert fetch(lab.floating_ip("endpoint", "second")) == f"second {UPLINK_HOST}"
