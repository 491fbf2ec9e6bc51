"""The last words of the demo: what is there now, and what to try next. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.record import command_line
from hack.controlplane.state import NamedControlPlane
from hack.demo.cluster import CLUSTER_NAME, NAMESPACE
from hack.demo.rack import PROJECT, DemoRack
from hack.demo.workload import SERVICE

__all__ = ["Holder", "too_late", "with_machines", "without_machines"]

_KUBECTL = f"kubectl -n {NAMESPACE}"
# A proxy of the person's has no way to an address of this computer.
_CURL = "curl --noproxy '*'"


def too_late(named: NamedControlPlane, missing: str) -> str:
    """What is said when the cluster did not come as far as it should."""
    return (
        f"The cluster did not come as far as it should: {missing}. Everything is left running.\n"
        f"The logs say why: {named.logs}. `make demo-down` stops it all."
    )


def without_machines(named: NamedControlPlane, rack: DemoRack) -> str:
    """What is said at the end where the instances are empty."""
    return f"""
Up, and left running: the control plane's instance runs and has the endpoint. The workers wait for a control plane that
answers; that needs an operating system in the instance, and there is none here.

{_management(named)}
{_rack(rack)}
{_end("half a minute; then the rack is empty again")}
  logs  {named.logs}"""


@dataclass(frozen=True)
class Holder:
    """Who has the Service's address.

    Attributes:
        address: the floating IP.
        instance: the instance's name.
        machine: the name of its OxideMachine.
    """

    address: str
    instance: str
    machine: str


def with_machines(named: NamedControlPlane, rack: DemoRack, kubeconfig: Path, holder: Holder) -> str:
    """What is said at the end where Nodes are Ready and a Service answers."""
    inside = f"kubectl --kubeconfig {shlex.quote(str(kubeconfig))}"
    stop = _ask(rack, f"/v1/instances/{holder.instance}/stop?project={PROJECT}", "-X POST ")
    patch = """'{"spec": {"powerPolicy": "Observe"}}'"""
    return f"""
Up, and left running.

{_management(named)}
  {inside} get nodes -o wide
  {inside} get pods -A -o wide
  {_CURL} http://{holder.address}/
{_rack(rack)}

Stop the instance that has the Service's address, and see the address move. The provider would start it again, if it
were not told to look on only:
  {_KUBECTL} patch oxidemachine {holder.machine} --type merge -p {patch}
  {stop}
  {inside} get service {SERVICE} --watch      # the private address is the new holder's
  {_CURL} http://{holder.address}/

{_end("a minute; then the rack is empty again, the Service's address included")}
  kubeconfig of the cluster  {kubeconfig}
  logs                       {named.logs}"""


def _management(named: NamedControlPlane) -> str:
    return f"""  eval "$({command_line()} env --name {named.name})"    # kubectl and clusterctl for what follows
  {_KUBECTL} get cluster,machines,oxidecluster,oxidemachines
  {_KUBECTL} describe oxidecluster {CLUSTER_NAME}"""


def _rack(rack: DemoRack) -> str:
    return f"  {_ask(rack, f'/v1/instances?project={PROJECT}')}"


def _ask(rack: DemoRack, path: str, option: str = "") -> str:
    return f"{_CURL} {option}-H {shlex.quote(f'@{rack.authorization_file}')} '{rack.url}{path}'"


def _end(how_long: str) -> str:
    return f"""  {_KUBECTL} delete cluster {CLUSTER_NAME}    # {how_long}
  make demo-down                   # stop it all; then: unset KUBECONFIG; hash -r
"""
