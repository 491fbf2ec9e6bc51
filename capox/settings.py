"""Settings from flags and environment, frozen. The only place that reads the environment (the rack has its own).

Flags have the names that Cluster API's providers share, and those that Oxide's own provider takes, so that a Deployment
written for it starts this one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = [
    "BindAddress",
    "ProviderSettings",
    "parse_bind_address",
    "parse_count",
    "parse_duration_seconds",
    "parse_rate",
    "parse_switch",
    "process_environment",
    "provider_settings",
]

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True, slots=True)
class BindAddress:
    """Where to listen.

    Attributes:
        host: An address; empty for all interfaces.
        port: A TCP port; 0 for any free one.
    """

    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """How the provider runs.

    Attributes:
        kubeconfig: The kubeconfig; None logs in as the Pod's ServiceAccount, or as kubectl would.
        namespace: The only namespace that is looked after; empty for all.
        watch_filter: The value of the label `cluster.x-k8s.io/watch-filter` that objects must have; empty for all.
        sync_period_seconds: After how long everything is looked at again.
        cluster_concurrency: How many OxideClusters are worked on at once.
        machine_concurrency: How many OxideMachines are worked on at once.
        template_concurrency: How many OxideMachineTemplates are worked on at once.
        ccm_concurrency: How many cloud controller managers are worked on at once.
        may_share_credentials: Whether a cluster's own credentials may go into it.
        ccm_image: The image of cloud controller managers; empty for the manager's own.
        pod: Namespace and name of this process's Pod; None outside of one.
        is_leader_elected: Whether a Lease decides which replica works.
        lease_namespace: Where the Lease is.
        identity: What this replica calls itself in the Lease.
        health_address: Where /healthz and /readyz are served; None serves none.
        diagnostics_address: Where /metrics is served; None serves none.
        is_diagnostics_insecure: Whether it is served in plain HTTP to everybody.
        rack_requests_per_second: How many requests a second one rack gets in the long run.
        rack_burst: How many it gets at once after a pause.
        log_level: The least level that is logged.
        is_log_json: Whether logs are JSON lines.
    """

    kubeconfig: pathlib.Path | None
    namespace: str
    watch_filter: str
    sync_period_seconds: float
    cluster_concurrency: int
    machine_concurrency: int
    template_concurrency: int
    ccm_concurrency: int
    may_share_credentials: bool
    ccm_image: str
    pod: tuple[str, str] | None
    is_leader_elected: bool
    lease_namespace: str
    identity: str
    health_address: BindAddress | None
    diagnostics_address: BindAddress | None
    is_diagnostics_insecure: bool
    rack_requests_per_second: float
    rack_burst: int
    log_level: str
    is_log_json: bool


def provider_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> ProviderSettings:
    """The settings of `capox provider`.

    Args:
        arguments: The command line behind the command.
        environment: Variables; the process's own when absent. Read: POD_NAMESPACE, POD_NAME, HOSTNAME, KUBECONFIG.

    Raises:
        SystemExit: The command line is wrong; the message names the flag, the value and what is expected.
    """
    variables = os.environ if environment is None else environment
    options = _provider_parser().parse_args(arguments)
    pod = (variables.get("POD_NAMESPACE") or "", variables.get("POD_NAME") or "")
    kubeconfig = options.kubeconfig or variables.get("KUBECONFIG")
    return ProviderSettings(
        kubeconfig=pathlib.Path(kubeconfig) if kubeconfig else None,
        namespace=options.namespace,
        watch_filter=options.watch_filter,
        sync_period_seconds=options.sync_period,
        cluster_concurrency=options.oxidecluster_concurrency,
        machine_concurrency=options.oxidemachine_concurrency,
        template_concurrency=options.oxidemachinetemplate_concurrency,
        ccm_concurrency=options.ccm_concurrency,
        may_share_credentials=options.ccm_shared_credentials == "allow",
        ccm_image=options.ccm_image,
        pod=pod if all(pod) else None,
        is_leader_elected=options.leader_elect,
        lease_namespace=options.leader_election_namespace or variables.get("POD_NAMESPACE") or "capox-system",
        identity=variables.get("POD_NAME") or variables.get("HOSTNAME") or "capox",
        health_address=options.health_probe_bind_address,
        diagnostics_address=options.diagnostics_address,
        is_diagnostics_insecure=options.insecure_diagnostics,
        rack_requests_per_second=options.rack_requests_per_second,
        rack_burst=options.rack_burst,
        log_level=options.log_level,
        is_log_json=options.log_format == "json",
    )


def parse_duration_seconds(text: str) -> float:
    """A duration as Go writes it, such as 10m, 1h30m or 90s.

    Raises:
        ArgumentTypeError: It is none, or not more than 0.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 10m, 1h30m or 90s")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return seconds


def parse_bind_address(text: str) -> BindAddress | None:
    """An address to listen at, such as :9440 or 127.0.0.1:9440 or [::1]:9440; `0` for none.

    Raises:
        ArgumentTypeError: It is none.
    """
    if text in {"", "0"}:
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as :9440 or 127.0.0.1:9440, or 0 for none")
    return BindAddress(host.removeprefix("[").removesuffix("]"), int(port))


def parse_count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_rate(text: str) -> float:
    """A number of more than 0.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of more than 0")
    return number


def parse_switch(text: str) -> bool:
    """A flag that Go programs are given as --flag, --flag=true or --flag=false.

    Raises:
        ArgumentTypeError: It is neither true nor false.
    """
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def process_environment() -> Mapping[str, str]:
    """The variables of this process, for settings that are read elsewhere."""
    return os.environ


def _provider_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="capox provider", description="Cluster API infrastructure provider for Oxide racks.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--kubeconfig", default="", help="kubeconfig of the management cluster (default: in-cluster, then KUBECONFIG)")
    add("--namespace", default="", help="look after this namespace only (default: all)")
    add(
        "--watch-filter", default="", help="look after objects whose label cluster.x-k8s.io/watch-filter has this value"
    )
    add("--sync-period", type=parse_duration_seconds, default=600.0, help="look at everything again (default: 10m)")
    add("--oxidecluster-concurrency", type=parse_count, default=10, help="clusters at once (default: 10)")
    add("--oxidemachine-concurrency", type=parse_count, default=32, help="machines at once (default: 32)")
    add("--oxidemachinetemplate-concurrency", type=parse_count, default=5, help="templates at once (default: 5)")
    add("--ccm-concurrency", type=parse_count, default=50, help="cloud controller managers at once (default: 50)")
    add(
        "--ccm-shared-credentials",
        choices=["allow", "refuse"],
        default="allow",
        help="may a cluster's own credentials go into it, where it names no others? (default: allow)",
    )
    add("--ccm-image", default="", help="image of cloud controller managers (default: that of the Pod)")
    add(
        "--leader-elect", type=parse_switch, nargs="?", const=True, default=False, help="let a Lease choose one replica"
    )
    add("--leader-election-namespace", default="", help="namespace of the Lease (default: the Pod's)")
    add(
        "--health-probe-bind-address",
        type=parse_bind_address,
        default=parse_bind_address(":9440"),
        help="/healthz and /readyz (default: :9440; 0 for none)",
    )
    add(
        "--diagnostics-address",
        "--metrics-bind-address",
        type=parse_bind_address,
        default=parse_bind_address(":8443"),
        help="/metrics, over HTTPS, for those whom RBAC lets (default: :8443; 0 for none)",
    )
    add(
        "--insecure-diagnostics",
        type=parse_switch,
        nargs="?",
        const=True,
        default=False,
        help="serve it in plain HTTP to everybody",
    )
    add(
        "--rack-requests-per-second",
        type=parse_rate,
        default=20.0,
        help="requests to one rack in the long run (default: 20)",
    )
    add("--rack-burst", type=parse_count, default=40, help="requests to one rack at once (default: 40)")
    add(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="least level (default: info)"
    )
    add("--log-format", choices=["json", "text"], default="json", help="form of log lines (default: json)")
    return parser
