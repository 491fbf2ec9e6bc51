"""Lenient views of the core kinds that the cloud controller manager reads: Node, Service, Pod, Namespace. Pure data.

What is written back whole, a Node's taints above all, keeps the fields that nobody here knows.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, ConfigDict

from capox.kube.objects import NULL_IS_EMPTY_LIST, KubeModel, Resource, Timestamp

__all__ = [
    "Container",
    "ContainerPort",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "Namespace",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodSpec",
    "PodStatus",
    "Service",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "Taint",
]

_Texts: TypeAlias = Annotated[tuple[str, ...], NULL_IS_EMPTY_LIST]
_Text: TypeAlias = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
_Number: TypeAlias = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]

READY: Final = "Ready"
"""The Node condition that tells whether its kubelet is well."""


class Taint(KubeModel):
    """A taint of a Node."""

    model_config = ConfigDict(extra="allow")

    key: str
    """What keeps Pods away."""

    effect: _Text = ""
    """How it does: NoSchedule, PreferNoSchedule, NoExecute."""

    value: str | None = None
    """A word with it, often none."""


class NodeSpec(KubeModel):
    """What is wanted of a Node."""

    provider_id: _Text = ""
    """Which instance it is; it can be set once."""

    taints: Annotated[tuple[Taint, ...], NULL_IS_EMPTY_LIST] = ()
    """Its taints. The list is replaced whole, so a write of it carries the resourceVersion (N1, L8)."""

    unschedulable: bool | None = None
    """Whether it is cordoned."""


class NodeAddress(KubeModel):
    """One address of a Node."""

    type: str
    """InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""

    address: str
    """The address or name."""


class NodeCondition(KubeModel):
    """One aspect of a Node's state. Others write these, so nothing about them is checked."""

    type: str
    """Which aspect."""

    status: str
    """True, False or Unknown."""

    reason: _Text = ""
    """Why, for programs."""

    last_transition_time: Timestamp | None = None
    """When the status last changed."""


class NodeStatus(KubeModel):
    """How a Node is."""

    addresses: Annotated[tuple[NodeAddress, ...], NULL_IS_EMPTY_LIST] = ()
    """Its addresses; the first InternalIP is the one that everybody uses."""

    conditions: Annotated[tuple[NodeCondition, ...], NULL_IS_EMPTY_LIST] = ()
    """Its conditions."""


class Node(Resource):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    """What is wanted of it."""

    status: NodeStatus = NodeStatus()
    """How it is."""

    @property
    def ready(self) -> NodeCondition | None:
        """The condition Ready; None while nobody has written it, which counts as Unknown."""
        return next((each for each in self.status.conditions if each.type == READY), None)

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet is well."""
        ready = self.ready
        return ready is not None and ready.status == "True"

    def has_taint(self, key: str) -> bool:
        """Whether it has a taint of this key, whatever its value and effect."""
        return any(taint.key == key for taint in self.spec.taints)

    def addresses_of(self, type_: str) -> tuple[str, ...]:
        """Its addresses of a type, in their order."""
        return tuple(each.address for each in self.status.addresses if each.type == type_)


class ServicePort(KubeModel):
    """One port of a Service."""

    name: _Text = ""
    """Its name; may be empty where there is only one."""

    protocol: str = "TCP"
    """TCP, UDP or SCTP."""

    port: int
    """The port."""

    node_port: _Number = 0
    """The port on every node; 0 where none is allocated."""

    app_protocol: str | None = None
    """What is spoken there."""


class ServiceSpec(KubeModel):
    """What is wanted of a Service."""

    type: str = "ClusterIP"
    """ClusterIP, NodePort, LoadBalancer or ExternalName."""

    load_balancer_class: str | None = None
    """Who is to take care of it; None for the cloud's controller."""

    load_balancer_ip: _Text = ""
    """An address that is asked for (deprecated, and still set)."""

    load_balancer_source_ranges: _Texts = ()
    """Who may reach it; empty for everybody."""

    external_traffic_policy: _Text = ""
    """Cluster or Local."""

    ports: Annotated[tuple[ServicePort, ...], NULL_IS_EMPTY_LIST] = ()
    """Its ports."""

    cluster_ip: _Text = ""
    """Its address in the cluster; `None` for a headless one."""

    ip_families: _Texts = ()
    """IPv4, IPv6, or both in the order of preference."""

    ip_family_policy: _Text = ""
    """SingleStack, PreferDualStack or RequireDualStack."""

    external_ips: _Texts = ()
    """Further addresses, which are nobody's but the user's."""


class LoadBalancerIngress(KubeModel):
    """One entry of how a Service is reached."""

    ip: _Text = ""
    """The address."""

    hostname: _Text = ""
    """The name, for those that have one."""

    ip_mode: str | None = None
    """VIP or Proxy; None reads as VIP (V1)."""


class LoadBalancerStatus(KubeModel):
    """How a Service is reached from outside."""

    ingress: Annotated[tuple[LoadBalancerIngress, ...], NULL_IS_EMPTY_LIST] = ()
    """The entries; the list is replaced whole (S6)."""


class ServiceStatus(KubeModel):
    """How a Service is."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    """How it is reached from outside."""


class Service(Resource):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()
    """What is wanted of it."""

    status: ServiceStatus = ServiceStatus()
    """How it is."""


class ContainerPort(KubeModel):
    """One port of a container."""

    container_port: _Number = 0
    """The port in the Pod."""

    host_port: _Number = 0
    """The port on the node; 0 for none."""

    protocol: str = "TCP"
    """TCP, UDP or SCTP."""

    host_ip: _Text = ""
    """The node's address that the port is bound at; empty for all."""


class Container(KubeModel):
    """One container, as far as its ports go."""

    ports: Annotated[tuple[ContainerPort, ...], NULL_IS_EMPTY_LIST] = ()
    """Its ports."""

    restart_policy: _Text = ""
    """`Always` for an init container that stays."""


class PodSpec(KubeModel):
    """What is wanted of a Pod."""

    node_name: _Text = ""
    """Its Node; empty until it has one."""

    host_network: bool | None = None
    """Whether it uses the node's own network."""

    containers: Annotated[tuple[Container, ...], NULL_IS_EMPTY_LIST] = ()
    """Its containers."""

    init_containers: Annotated[tuple[Container, ...], NULL_IS_EMPTY_LIST] = ()
    """Its init containers."""


class PodStatus(KubeModel):
    """How a Pod is."""

    phase: _Text = ""
    """Pending, Running, Succeeded, Failed or Unknown."""


class Pod(Resource):
    """A Pod."""

    spec: PodSpec = PodSpec()
    """What is wanted of it."""

    status: PodStatus = PodStatus()
    """How it is."""


class Namespace(Resource):
    """A namespace; the UID of `kube-system` stands for the cluster (V9)."""
