"""Settings of the cloud controller manager, frozen, from flags and variables that it is handed.

Flags have upstream's names where upstream has one, and a manifest of Oxide's own cloud controller manager starts this
one: flags that mean nothing here are taken and ignored.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import SecretStr

from capox.settings import (
    BindAddress,
    parse_count,
    parse_duration_seconds,
    parse_rate,
    parse_switch,
    process_environment,
)

__all__ = ["CONTROLLERS", "CCMSettings", "ccm_settings", "parse_controllers"]

CONTROLLERS: Final = ("cloud-node", "cloud-node-lifecycle", "service")
"""The controllers of the cloud controller manager."""

_CONTROLLER_NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in CONTROLLERS},
    "cloud-node-controller": "cloud-node",
    "cloud-node-lifecycle-controller": "cloud-node-lifecycle",
    "service-lb-controller": "service",
    # Asked for and refused by everybody: there are no routes to be made on a rack.
    "node-route-controller": "",
    "route": "",
}
"""What --controllers may name, upstream's two names of each, and whose name it is."""

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CCMSettings:
    """How the cloud controller manager runs.

    Attributes:
        kubeconfig: The kubeconfig; None logs in as the Pod's ServiceAccount, or as kubectl would.
        is_kubeconfig_untrusted: Whether somebody else writes the kubeconfig, and owns the cluster behind it.
        credentials_directory: A folder with the rack's credentials as files; None for none.
        rack_variables: The rack's credentials as the environment has them, by the names of the variables.
        cluster_id: What stands for the cluster on the rack; empty for the UID of the namespace kube-system.
        cluster_name: What Oxide's own cloud controller manager called the cluster, for taking over from it (V10).
        controllers: Which controllers run.
        region: The region label's value; empty for none.
        zone: The zone label's value; empty for none.
        is_ipv6_first: Whether IPv6 addresses of a Node come first.
        node_monitor_seconds: The pause between two looks at silent Nodes.
        node_status_seconds: After how long a Node's addresses are looked at again.
        node_concurrency: How many Nodes are worked on at once.
        service_concurrency: How many Services are worked on at once.
        is_leader_elected: Whether a Lease decides which replica works.
        lease_namespace: Where the Lease is.
        lease_name: What it is called; the same for every cloud controller manager, so that they exclude each other.
        lease_seconds: For how long after its last change it belongs to its holder.
        renew_deadline_seconds: After how long without a renewal the holder gives up.
        retry_seconds: The pause between two renewals.
        identity: What this replica calls itself in the Lease.
        serving_address: Where health and metrics are served; None serves none.
        tls_certificate: The certificate that they are served under; None makes one.
        tls_key: Its key.
        rack_requests_per_second: How many requests a second the rack gets in the long run.
        rack_burst: How many it gets at once after a pause.
        log_level: The least level that is logged.
        is_log_json: Whether logs are JSON lines.
    """

    kubeconfig: pathlib.Path | None
    is_kubeconfig_untrusted: bool
    credentials_directory: pathlib.Path | None
    rack_variables: Mapping[str, SecretStr]
    cluster_id: str
    cluster_name: str
    controllers: frozenset[str]
    region: str
    zone: str
    is_ipv6_first: bool
    node_monitor_seconds: float
    node_status_seconds: float
    node_concurrency: int
    service_concurrency: int
    is_leader_elected: bool
    lease_namespace: str
    lease_name: str
    lease_seconds: float
    renew_deadline_seconds: float
    retry_seconds: float
    identity: str
    serving_address: BindAddress | None
    tls_certificate: pathlib.Path | None
    tls_key: pathlib.Path | None
    rack_requests_per_second: float
    rack_burst: int
    log_level: str
    is_log_json: bool


def ccm_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> CCMSettings:
    """The settings of `capox ccm`.

    Args:
        arguments: The command line behind the command.
        environment: Variables; the process's own when absent. Read: OXIDE_HOST, OXIDE_TOKEN, OXIDE_PROJECT, OXIDE_CA,
            POD_NAME, HOSTNAME, KUBECONFIG.

    Raises:
        SystemExit: The command line is wrong; the message names the flag, the value and what is expected.
    """
    variables = process_environment() if environment is None else environment
    parser = _ccm_parser()
    options = parser.parse_args(arguments)
    if not options.lease_duration > options.renew_deadline > 1.2 * options.retry_period:
        parser.error("--leader-elect-lease-duration, -renew-deadline, -retry-period: each must be longer than the next")
    if (options.tls_cert_file is None) is not (options.tls_private_key_file is None):
        parser.error("--tls-cert-file and --tls-private-key-file: give both or none")
    kubeconfig = options.kubeconfig or variables.get("KUBECONFIG")
    rack = ("OXIDE_HOST", "OXIDE_TOKEN", "OXIDE_PROJECT", "OXIDE_CA")
    return CCMSettings(
        kubeconfig=pathlib.Path(kubeconfig) if kubeconfig else None,
        is_kubeconfig_untrusted=options.untrusted_kubeconfig,
        credentials_directory=options.credentials_directory,
        rack_variables={name: SecretStr(variables[name]) for name in rack if name in variables},
        cluster_id=options.cluster_id,
        cluster_name=options.cluster_name,
        controllers=options.controllers,
        region=options.region,
        zone=options.zone,
        is_ipv6_first=options.ipv6_first,
        node_monitor_seconds=options.node_monitor_period,
        node_status_seconds=options.node_status_update_frequency,
        node_concurrency=options.concurrent_node_syncs,
        service_concurrency=options.concurrent_service_syncs,
        is_leader_elected=options.leader_elect,
        lease_namespace=options.lease_namespace,
        lease_name=options.lease_name,
        lease_seconds=options.lease_duration,
        renew_deadline_seconds=options.renew_deadline,
        retry_seconds=options.retry_period,
        identity=variables.get("POD_NAME") or variables.get("HOSTNAME") or "capox-ccm",
        serving_address=BindAddress(options.bind_address, options.secure_port) if options.secure_port else None,
        tls_certificate=options.tls_cert_file,
        tls_key=options.tls_private_key_file,
        rack_requests_per_second=options.rack_requests_per_second,
        rack_burst=options.rack_burst,
        log_level=options.log_level,
        is_log_json=options.log_format == "json",
    )


def parse_controllers(text: str) -> frozenset[str]:
    """Which controllers run, as upstream writes it: `*` for all, a name for one, a name behind a `-` for not that one.

    Raises:
        ArgumentTypeError: A name is not known.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    chosen = set(CONTROLLERS) if "*" in words else set()
    for word in words:
        if word == "*":
            continue
        name = _CONTROLLER_NAMES.get(word.removeprefix("-"))
        if name is None:
            raise argparse.ArgumentTypeError(f"{word!r} is no controller; there are *, {', '.join(CONTROLLERS)}")
        if word.startswith("-"):
            chosen.discard(name)
        else:
            chosen.add(name)
    return frozenset(chosen - {""})


def _label_value(text: str) -> str:
    if text and not _LABEL_VALUE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no label value: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
        )
    return text


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _oxide_only(text: str) -> str:
    if text != "oxide":
        raise argparse.ArgumentTypeError(f"{text!r} is not oxide, the only cloud that this one knows")
    return text


def _ccm_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="capox ccm", description="Cloud controller manager for clusters on an Oxide rack.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--cloud-provider", type=_oxide_only, default="oxide", help="oxide; there is no other (default: oxide)")
    add("--kubeconfig", default="", help="kubeconfig of the cluster (default: in-cluster, then KUBECONFIG)")
    add(
        "--untrusted-kubeconfig",
        action="store_true",
        help="take only an inline address and login from the kubeconfig, and limit what the cluster answers",
    )
    add(
        "--credentials-directory",
        type=pathlib.Path,
        help="folder with the files oxide-host, oxide-token, oxide-project and perhaps oxide-ca, which may change at "
        "any time (default: the variables OXIDE_HOST, OXIDE_TOKEN, OXIDE_PROJECT, OXIDE_CA)",
    )
    add("--cluster-id", default="", help="what stands for the cluster on the rack (default: kube-system's UID)")
    add(
        "--cluster-name",
        default="kubernetes",
        help="what Oxide's own cloud controller manager was told here, to find its floating IPs (default: kubernetes)",
    )
    add(
        "--controllers",
        type=parse_controllers,
        default=parse_controllers("*"),
        help=f"*, or some of {', '.join(CONTROLLERS)}; -NAME leaves one out (default: *)",
    )
    add("--region", type=_label_value, default="", help="label topology.kubernetes.io/region of new Nodes")
    add("--zone", type=_label_value, default="", help="label topology.kubernetes.io/zone of new Nodes")
    add(
        "--ipv6-first",
        type=parse_switch,
        nargs="?",
        const=True,
        default=False,
        help="put IPv6 addresses of Nodes first",
    )
    add("--node-monitor-period", type=parse_duration_seconds, default=5.0, help="look at silent Nodes (default: 5s)")
    add(
        "--node-status-update-frequency",
        type=parse_duration_seconds,
        default=300.0,
        help="look at the addresses of Nodes again (default: 5m)",
    )
    add("--concurrent-node-syncs", type=parse_count, default=4, help="Nodes at once (default: 4)")
    add("--concurrent-service-syncs", type=parse_count, default=4, help="Services at once (default: 4)")
    _add_election(parser)
    add("--bind-address", default="", help="address of /healthz, /readyz and /metrics (default: all)")
    add("--secure-port", type=_port, default=10258, help="their port, over HTTPS (default: 10258; 0 for none)")
    add("--tls-cert-file", type=pathlib.Path, help="certificate to serve under (default: one made at the start)")
    add("--tls-private-key-file", type=pathlib.Path, help="its key")
    add("--rack-requests-per-second", type=parse_rate, default=10.0, help="requests in the long run (default: 10)")
    add("--rack-burst", type=parse_count, default=20, help="requests at once (default: 20)")
    add(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="least level (default: info)"
    )
    add("--log-format", choices=["json", "text"], default="json", help="form of log lines (default: json)")
    _add_ignored(parser)
    return parser


def _add_election(parser: argparse.ArgumentParser) -> None:
    """The flags of the Lease, under upstream's names."""
    add = parser.add_argument
    add("--leader-elect", type=parse_switch, nargs="?", const=True, default=True, help="hold the Lease (default: true)")
    add("--leader-elect-lease-duration", dest="lease_duration", type=parse_duration_seconds, default=15.0)
    add("--leader-elect-renew-deadline", dest="renew_deadline", type=parse_duration_seconds, default=10.0)
    add("--leader-elect-retry-period", dest="retry_period", type=parse_duration_seconds, default=2.0)
    add("--leader-elect-resource-lock", choices=["leases"], default="leases")
    add("--leader-elect-resource-name", dest="lease_name", default="cloud-controller-manager")
    add("--leader-elect-resource-namespace", dest="lease_namespace", default="kube-system")


def _add_ignored(parser: argparse.ArgumentParser) -> None:
    """Flags of other cloud controller managers that mean nothing here, so that a manifest of theirs starts this one."""
    for name in (
        "allocate-node-cidrs",
        "allow-untagged-cloud",
        "authentication-kubeconfig",
        "authentication-skip-lookup",
        "authorization-kubeconfig",
        "cloud-config",
        "cluster-cidr",
        "configure-cloud-routes",
        "kube-api-burst",
        "kube-api-qps",
        "profiling",
        "use-service-account-credentials",
        "v",
    ):
        parser.add_argument(f"--{name}", nargs="?", help=argparse.SUPPRESS)
