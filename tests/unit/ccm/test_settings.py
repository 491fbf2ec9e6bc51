"""The flags and variables of the cloud controller manager (5.1, R3)."""

from __future__ import annotations

import pathlib

import pytest

from capox.ccm.settings import CONTROLLERS, ccm_settings, parse_controllers

OXIDE_MANIFEST = ("--cloud-provider=oxide", "--leader-elect=true", "--configure-cloud-routes=false", "--v=2")


def test_defaults_are_upstreams() -> None:
    """Without flags: the Lease that all share, upstream's times and port, all controllers."""
    settings = ccm_settings([], {"HOSTNAME": "pod-1", "OXIDE_HOST": "rack.example", "UNRELATED": "x"})

    assert (settings.lease_namespace, settings.lease_name) == ("kube-system", "cloud-controller-manager")
    assert (settings.lease_seconds, settings.renew_deadline_seconds, settings.retry_seconds) == (15, 10, 2)
    assert (settings.node_monitor_seconds, settings.node_status_seconds) == (5, 300)
    assert settings.serving_address is not None
    assert settings.serving_address.port == 10258
    assert settings.controllers == frozenset(CONTROLLERS)
    assert settings.is_leader_elected
    assert settings.identity == "pod-1"
    assert list(settings.rack_variables) == ["OXIDE_HOST"]


def test_a_manifest_of_oxides_own_starts_this_one() -> None:
    """Flags that mean nothing here are taken, with a value or without."""
    assert ccm_settings(OXIDE_MANIFEST, {}).is_leader_elected
    assert ccm_settings(["--use-service-account-credentials", "--kube-api-qps", "20"], {}).is_leader_elected
    assert ccm_settings(["--cluster-name=mine"], {}).cluster_name == "mine"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", set(CONTROLLERS)),
        ("*,-service", {"cloud-node", "cloud-node-lifecycle"}),
        ("-service-lb-controller,*", {"cloud-node", "cloud-node-lifecycle"}),
        ("cloud-node-controller", {"cloud-node"}),
        ("*,-route", set(CONTROLLERS)),
        ("", set()),
    ],
)
def test_controllers_are_chosen_as_upstream_does(text: str, expected: set[str]) -> None:
    """All, some, or all but some; both of upstream's names for each."""
    assert parse_controllers(text) == expected


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--cloud-provider=aws"], "oxide"),
        (["--controllers=cloud-nodes"], "cloud-node"),
        (["--zone=no/zone"], "label value"),
        (["--secure-port=70000"], "65535"),
        (["--leader-elect-renew-deadline=20s"], "longer"),
        (["--tls-cert-file=/c.pem"], "both"),
        (["--node-monitor-period=soon"], "duration"),
        (["--unknown"], "--unknown"),
    ],
)
def test_a_wrong_command_line_is_told(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has what was expected, and the exit code is that of a wrong command line."""
    with pytest.raises(SystemExit) as caught:
        ccm_settings(arguments, {})

    assert caught.value.code == 2
    assert word in capsys.readouterr().err


def test_credentials_never_show() -> None:
    """Settings may be logged: the token is not in them as text."""
    settings = ccm_settings(["--credentials-directory=/etc/oxide"], {"OXIDE_TOKEN": "s3cret"})

    assert "s3cret" not in repr(settings)
    assert settings.credentials_directory == pathlib.Path("/etc/oxide")
