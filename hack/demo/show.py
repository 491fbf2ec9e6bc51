"""What the demo shows once everything has been applied: as much of a cluster as the rack's instances can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hack.controlplane import binaries
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.programs import KUBECTL
from hack.controlplane.state import NamedControlPlane
from hack.demo import closing, cluster
from hack.demo.cluster import NODES, Row
from hack.demo.management import Management
from hack.demo.rack import DemoRack
from hack.demo.watch import until, watch
from hack.demo.workload import Workload, address_of, fetch, is_initialized, is_ready, node_rows, nodes_are_ready

__all__ = ["show"]

INFRASTRUCTURE_SECONDS: Final = 180.0
NODES_SECONDS: Final = 900.0
INITIALIZED_SECONDS: Final = 300.0
SERVICE_SECONDS: Final = 180.0
HOLDER_SECONDS: Final = 60.0

Found = TypeVar("Found")


class TooLateError(Exception):
    """A state did not come within its bound. The message is what is missing."""


def show(management: Management, rack: DemoRack, named: NamedControlPlane, environ: Mapping[str, str]) -> int:
    """Show how the cluster comes to be, and print what to do next.

    Returns:
        The exit code: 0, or 1 when it did not come as far as it should.
    """
    try:
        if rack.machines is None:
            _show_infrastructure(management, rack)
            print(closing.without_machines(named, rack))
        else:
            kubectl = binaries.resolve(environ, programs=(KUBECTL,)).path(KUBECTL)
            workload = Workload(kubectl, named.directory)
            _show_nodes(management, rack, workload)
            address = _show_service(workload, rack.machines.manager)
            missing = f"no instance was seen to have {address}"
            names = _wait(missing, HOLDER_SECONDS, lambda: _holder(management, rack, address))
            holder = closing.Holder(address, *names)
            print(closing.with_machines(named, rack, workload.kubeconfig, holder))
    except TooLateError as error:
        print(closing.too_late(named, str(error)))
        return 1
    return 0


def _show_infrastructure(management: Management, rack: DemoRack) -> None:
    def look() -> list[Row]:
        return cluster.rows(management, rack)

    if not watch(look, cluster.infrastructure_stands, within_seconds=INFRASTRUCTURE_SECONDS):
        raise TooLateError(f"no instance had the endpoint within {INFRASTRUCTURE_SECONDS:.0f} s")


def _show_nodes(management: Management, rack: DemoRack, workload: Workload) -> None:
    def look() -> list[Row]:
        found = cluster.rows(management, rack)
        return found + node_rows(workload.nodes()) if workload.fetch_kubeconfig(management) else found

    if not watch(look, nodes_are_ready, within_seconds=NODES_SECONDS):
        raise TooLateError(f"there were no {NODES} Ready Nodes within {NODES_SECONDS:.0f} s")
    print(f"\n{NODES} Nodes are Ready. The cloud controller manager, which the provider has installed, takes them now.")


def _show_service(workload: Workload, image: str) -> str:
    """Expose a deployment, and ask it by its floating IP, which is given."""
    _wait("the cloud controller manager had not taken the Nodes", INITIALIZED_SECONDS, lambda: _are_taken(workload))
    print("It has taken them. A deployment of two Pods, and `kubectl expose deployment hello --type LoadBalancer`:")
    _wait("the deployment and its Service could not be made", SERVICE_SECONDS, lambda: _is_exposed(workload, image))
    _wait("the Pods of the deployment were not ready", SERVICE_SECONDS, lambda: _are_running(workload))
    address = _wait("the Service had no floating IP", SERVICE_SECONDS, lambda: address_of(workload.service()))
    answer = _wait(f"nothing answered at {address}", SERVICE_SECONDS, lambda: fetch(address))
    print(f"http://{address}/ answers: {answer.strip()}", flush=True)
    return address


def _wait(missing: str, within_seconds: float, look: Callable[[], Found | None]) -> Found:
    """Look until there is something (neither None nor False), which is given.

    Raises:
        TooLateError: nothing came; the message ends with the last failure of looking, if looking failed in the end.
    """
    found: Found | None = None
    failure = ""

    def has_come() -> bool:
        """Look once; what fails now may succeed the next time."""
        nonlocal found, failure
        try:
            found, failure = look(), ""
        except (ControlPlaneError, OSError, ValueError) as error:
            failure = f" ({error})"
            return False
        return bool(found)

    if not until(has_come, within_seconds=within_seconds) or found is None:
        raise TooLateError(f"{missing} within {within_seconds:.0f} s{failure}")
    return found


def _is_exposed(workload: Workload, image: str) -> bool:
    workload.expose(image)
    return True


def _are_taken(workload: Workload) -> bool:
    nodes = workload.nodes()
    return len(nodes) == NODES and all(is_initialized(node) for node in nodes)


def _are_running(workload: Workload) -> bool:
    pods = workload.pods()
    return bool(pods) and all(is_ready(pod) for pod in pods)


def _holder(management: Management, rack: DemoRack, address: str) -> tuple[str, str]:
    """The names of the instance that has an address, and of its OxideMachine.

    Raises:
        ValueError: none has it, as while it moves.
    """
    (holder,) = (each["instance_id"] for each in rack.list("floating-ips") if each["ip"] == address)
    (instance,) = (each["name"] for each in rack.list("instances") if each["id"] == holder)
    return instance, cluster.machine_of(management, holder)
