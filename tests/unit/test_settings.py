"""Settings from flags and environment."""

from __future__ import annotations

import pytest

from capox.settings import BindAddress, provider_settings


def test_defaults() -> None:
    """Without flags everything is looked after, by one replica, as a Pod."""
    settings = provider_settings([], {"POD_NAMESPACE": "capox-system", "POD_NAME": "capox-0"})

    assert settings.kubeconfig is None
    assert (settings.namespace, settings.watch_filter) == ("", "")
    assert settings.sync_period_seconds == 600
    assert (settings.lease_namespace, settings.identity) == ("capox-system", "capox-0")
    assert not settings.is_leader_elected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--leader-elect"], True),
        (["--leader-elect=true"], True),
        (["--leader-elect=false"], False),
    ],
)
def test_go_providers_arguments_are_understood(arguments: list[str], *, expected: bool) -> None:
    """A Deployment of Oxide's own provider starts this one unchanged."""
    settings = provider_settings([*arguments, "--health-probe-bind-address=:8081", "--metrics-bind-address=0"], {})

    assert settings.is_leader_elected is expected
    assert settings.health_address == BindAddress("", 8081)
    assert settings.diagnostics_address is None


def test_cloud_controller_managers_are_settled_by_flags() -> None:
    """Shared credentials are allowed and the image is the Pod's own, until somebody says otherwise."""
    settings = provider_settings([], {"POD_NAMESPACE": "capox-system", "POD_NAME": "capox-0"})
    assert (settings.may_share_credentials, settings.ccm_image) == (True, "")
    assert settings.pod == ("capox-system", "capox-0")

    settings = provider_settings(["--ccm-shared-credentials=refuse", "--ccm-image=a:1", "--ccm-concurrency=3"], {})
    assert (settings.may_share_credentials, settings.ccm_image, settings.ccm_concurrency) == (False, "a:1", 3)
    assert settings.pod is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("250ms", 0.25)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    """Durations are written as other providers take them."""
    assert provider_settings([f"--sync-period={text}"], {}).sync_period_seconds == seconds


@pytest.mark.parametrize(
    "argument",
    [
        "--sync-period=10",
        "--sync-period=0s",
        "--sync-period=1m2",
        "--oxidemachine-concurrency=0",
        "--oxidemachine-concurrency=many",
        "--health-probe-bind-address=9440",
        "--health-probe-bind-address=:99999",
        "--rack-requests-per-second=-1",
        "--leader-elect=perhaps",
        "--ccm-shared-credentials=maybe",
        "--sync",
    ],
)
def test_wrong_values_are_named(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong flag ends the start with the flag and what is expected."""
    with pytest.raises(SystemExit):
        provider_settings([argument], {})

    assert argument.partition("=")[0] in capsys.readouterr().err


def test_addresses_of_both_families() -> None:
    """An IPv6 address is written in brackets."""
    settings = provider_settings(["--diagnostics-address=[::1]:8443"], {})

    assert settings.diagnostics_address == BindAddress("::1", 8443)
