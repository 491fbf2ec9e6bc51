"""A cluster of twenty workers and thirty Services on five ports: nobody collides, a dead node is left, rest is rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.binaries import Binaries
from hack.controlplane.plane import ControlPlane
from tests.integration.audit import CCM_USER, AuditLog, apiserver_arguments
from tests.integration.ccm_cluster import PORTS, CCMCluster, begun
from tests.integration.ccm_process import CCMProcess, install_rights
from tests.integration.waiting import eventually
from tests.rack_process import RackProcess

TOKEN = "oxide-token-admin"
CONTROL_PLANES, WORKERS, SERVICES = 3, 20, 30

REST_SECONDS = 90
RACK_CALLS_A_MINUTE = 4
# The bench rests for five minutes; a minute and a half is three of the shared lists.


@pytest.fixture
def audited(binaries: Binaries, tmp_path: Path) -> Iterator[tuple[ControlPlane, AuditLog]]:
    """An API that nobody else uses, and what the cloud controller manager asked it."""
    arguments, audit = apiserver_arguments(tmp_path, CCM_USER)
    plane = ControlPlane(binaries, directory=tmp_path / "plane", with_controllers=False, apiserver_arguments=arguments)
    with plane:
        install_rights(plane)
        yield plane, audit


@pytest.mark.timeout(900)
def test_thirty_services_on_twenty_workers(audited: tuple[ControlPlane, AuditLog], tmp_path: Path) -> None:
    """V5, S12, S13, S25: no port twice on a node, at rest nothing is written, a dead node's Services go elsewhere."""
    plane, audit = audited
    with RackProcess(tmp_path) as rack, CCMProcess(plane, tmp_path, rack.url, TOKEN) as ccm:
        cluster = CCMCluster(plane, rack, audit)
        with cluster.living():
            cluster.add_nodes(control_planes=CONTROL_PLANES, workers=WORKERS)
            cluster.add_services(SERVICES)
            assert cluster.collisions() == []
            assert Counter(each.port for each in cluster.holdings()) == dict.fromkeys(PORTS, SERVICES // len(PORTS))
            masters = {cluster.instances[f"control-plane-{n}"] for n in range(CONTROL_PLANES)}
            assert not masters & {each.instance_id for each in cluster.holdings()}

            cluster.await_quiet()
            mark, call = audit.mark(), max(each["number"] for each in rack.control.calls())
            # What is waited for is time itself: that nothing happens in it.
            time.sleep(REST_SECONDS)
            assert cluster.writes_since(mark) == {}
            calls = begun(rack.control.calls(call))
            assert calls.total() * 60 / REST_SECONDS <= RACK_CALLS_A_MINUTE, calls

            before = {each.service: each.instance_id for each in cluster.holdings()}
            dead = next(name for name, instance in cluster.instances.items() if instance in before.values())
            rack.control.power_off(cluster.instances[dead])
            cluster.kubelets.silence(dead)
            eventually("the instance is stopped", lambda: cluster.states()[dead] == "stopped")
            cluster.await_served(without=[dead])
            assert cluster.collisions() == []
            after = {each.service: each.instance_id for each in cluster.holdings()}
            assert {name for name in after if after[name] != before[name]} == {
                name for name, instance in before.items() if instance == cluster.instances[dead]
            }
    assert "Traceback" not in ccm.log_file.read_text()
