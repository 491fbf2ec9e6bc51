"""What must hold after every step, whatever fails and whenever the process dies.

Each check compares the rack, as its state is, with the store, as its objects are. `Watchdog` runs them after every
change of the store and on every tick, and keeps what it needs to know of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from capox.api.v1alpha1 import CLUSTER_FINALIZER, MACHINE_FINALIZER
from capox.kube.kind import SECRETS
from capox.ownership import OwnerMark, parse_mark
from capox.provider.kinds import CLUSTERS, MACHINES, OXIDE_CLUSTERS, OXIDE_MACHINES
from tests.sim.cluster_api import CLUSTER_LABEL, CONTROL_PLANE_LABEL, NAMESPACE

if TYPE_CHECKING:
    from tests.sim.store import Change
    from tests.sim.world import World

# A write that was under way when a pause came may still land.
IN_FLIGHT_SECONDS = 25.0


class InvariantError(AssertionError):
    """Something that must never happen has happened."""


class Watchdog:
    """Looks at the world after each step.

    Args:
        world: What it looks at.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._foreign = self._foreign_things()
        self._foreign_rules = self._rules_of_others()
        self._own_names: set[str] = set()
        self._instances: dict[str, OwnerMark] = {}
        self._addresses: dict[str, str] = {}
        self._paused_since: dict[str, float] = {}
        self._calls_seen = 0
        self._events_seen = 0
        world.store.subscribe(self._on_change)

    def look(self) -> None:
        """Check everything.

        Raises:
            InvariantError: Something does not hold.
        """
        for complaint in (
            *self._one_instance_each(),
            *self._no_orphans(),
            *self._groups_are_right(),
            *self._none_deleted_by_mistake(),
            *self._bootstrap_data_is_exact(),
            *self._recorded_ids_are_true(),
            *self._address_is_kept(),
            *self._endpoint_is_never_on_a_joiner(),
            *self._clusters_outlive_machines(),
            *self._credentials_outlive_clusters(),
            *self._firewall_is_right(),
            *self._foreign_things_stay(),
            *self._secrets_stay_secret(),
            *self._nothing_is_written_while_paused(),
        ):
            raise InvariantError(f"seed {self._world.seed}: {complaint}\n{self._world.describe()}")

    def expect_firewall(self) -> None:
        """Take the rules of others as they are now: a user has just changed them."""
        self._foreign_rules = self._rules_of_others()

    def _on_change(self, change: Change) -> None:
        del change
        self.look()

    def _marked(self, table: Any) -> Iterator[tuple[Any, OwnerMark]]:
        for record in table:
            mark = parse_mark(record.description)
            if mark is not None:
                yield record, mark

    def _objects(self, kind: Any) -> dict[str, Any]:
        return {document["metadata"]["uid"]: document for document in self._world.store.list(kind, NAMESPACE)}

    def _one_instance_each(self) -> Iterator[str]:
        """A machine is never made twice (B1, B2)."""
        seen: dict[str, str] = {}
        for instance, mark in self._marked(self._world.rack.state.instances):
            if mark.uid in seen:
                yield f"{mark.name} has two instances, {seen[mark.uid]} and {instance.id}"
            seen[mark.uid] = instance.id

    def _no_orphans(self) -> Iterator[str]:
        """What was made for an object is there only as long as the object is, with our finalizer on it (C-IM-3)."""
        rack = self._world.rack.state
        machines, clusters = self._objects(OXIDE_MACHINES), self._objects(OXIDE_CLUSTERS)
        for table in (rack.instances, rack.disks):
            for record, mark in self._marked(table):
                owner = machines.get(mark.uid)
                if owner is None:
                    yield f"{record.name} is left on the rack, and its OxideMachine is gone"
                elif MACHINE_FINALIZER not in owner["metadata"].get("finalizers", ()):
                    yield f"{record.name} is on the rack, and its OxideMachine has not our finalizer"
        for floating_ip, mark in self._marked(rack.floating_ips):
            if mark.kind == "Service":
                # These are the cloud controller manager's as long as the cluster is there.
                continue
            owner = clusters.get(mark.uid)
            if mark.kind != "OxideCluster":
                continue
            if owner is None:
                yield f"floating IP {floating_ip.name} is left on the rack, and its OxideCluster is gone"
            elif CLUSTER_FINALIZER not in owner["metadata"].get("finalizers", ()):
                yield f"floating IP {floating_ip.name} is there, and its OxideCluster has not our finalizer"

    def _groups_are_right(self) -> Iterator[str]:
        """A machine of a cluster that keeps machines apart is, from its first moment, in one group: its role's."""
        rack = self._world.rack.state
        clusters, machines = self._objects(OXIDE_CLUSTERS), self._objects(OXIDE_MACHINES)
        roles = {}
        for group, mark in self._marked(rack.anti_affinity_groups):
            roles[group.id] = mark.further.get("role")
            owner = clusters.get(mark.uid)
            if owner is None:
                yield f"anti-affinity group {group.name} is left on the rack, and its OxideCluster is gone"
            elif CLUSTER_FINALIZER not in owner["metadata"].get("finalizers", ()):
                yield f"anti-affinity group {group.name} is there, and its OxideCluster has not our finalizer"
        asked = [document["spec"].get("antiAffinity") for document in clusters.values()]
        for instance, mark in self._marked(rack.instances):
            machine = machines.get(mark.uid)
            if machine is None or instance.state == "creating" or not all(asked):
                continue
            labels = machine["metadata"]["labels"]
            role = "control-plane" if CONTROL_PLANE_LABEL in labels else "md-workers"
            joined = [roles.get(group) for group in rack.groups_of.get(instance.id, ())]
            if joined != [role]:
                yield f"instance {instance.name} is in the groups {joined}, not in one of {role}"

    def _none_deleted_by_mistake(self) -> Iterator[str]:
        """An instance goes only when the deletion of its OxideMachine was asked for."""
        present = {instance.id: mark for instance, mark in self._marked(self._world.rack.state.instances)}
        machines = self._objects(OXIDE_MACHINES)
        for identity, mark in self._instances.items():
            owner = machines.get(mark.uid)
            if identity not in present and owner is not None and not owner["metadata"].get("deletionTimestamp"):
                yield f"instance {identity} of {mark.name} is gone, and nobody asked for that"
        self._instances |= present

    def _bootstrap_data_is_exact(self) -> Iterator[str]:
        """An instance has exactly the bootstrap data of its machine."""
        for instance, mark in self._marked(self._world.rack.state.instances):
            if instance.user_data != self._world.cluster_api.bootstrap_data[mark.name]:
                yield f"instance {instance.name} has other user data than its bootstrap Secret"

    def _recorded_ids_are_true(self) -> Iterator[str]:
        """A provider ID names the instance that was made for this very object, as long as that exists."""
        by_id = {instance.id: mark for instance, mark in self._marked(self._world.rack.state.instances)}
        for uid, document in self._objects(OXIDE_MACHINES).items():
            recorded = (document["spec"].get("providerID") or "").removeprefix("oxide://")
            if recorded and recorded in by_id and by_id[recorded].uid != uid:
                yield f"{document['metadata']['name']} has recorded the instance of {by_id[recorded].name}"
            if recorded and recorded not in by_id and recorded not in self._instances:
                yield f"{document['metadata']['name']} has recorded an instance that never was"

    def _address_is_kept(self) -> Iterator[str]:
        """The endpoint's address never changes, and its floating IP exists while the cluster does (C-IC-3)."""
        addresses = {str(floating_ip.ip) for floating_ip in self._world.rack.state.floating_ips}
        for document in self._world.store.list(OXIDE_CLUSTERS, NAMESPACE):
            metadata = document["metadata"]
            host = (document["spec"].get("controlPlaneEndpoint") or {}).get("host")
            before = self._addresses.setdefault(metadata["name"], host) if host else None
            if before != host:
                yield f"the endpoint of {metadata['name']} has changed from {before} to {host}"
            if host and host not in addresses and not metadata.get("deletionTimestamp"):
                yield f"the floating IP {host} of {metadata['name']} is gone"

    def _endpoint_is_never_on_a_joiner(self) -> Iterator[str]:
        """Once the control plane has answered, only an instance with a living apiserver carries it (M-26)."""
        rack = self._world.rack.state
        for cluster in self._world.store.list(CLUSTERS, NAMESPACE):
            initialization = (cluster.get("status") or {}).get("initialization") or {}
            if not initialization.get("controlPlaneInitialized"):
                continue
            for floating_ip, mark in self._marked(rack.floating_ips):
                holder = rack.instances.by_id(floating_ip.instance) if floating_ip.instance else None
                is_own = mark.name == cluster["metadata"]["name"]
                if is_own and holder is not None and holder.name not in self._world.was_alive:
                    yield f"the endpoint is on {holder.name}, whose apiserver was never alive"

    def _clusters_outlive_machines(self) -> Iterator[str]:
        """An OxideCluster stays as long as a machine of it does: its credentials and project are needed (C-IC-12)."""
        present = {document["metadata"]["name"] for document in self._world.store.list(OXIDE_CLUSTERS, NAMESPACE)}
        for document in self._world.store.list(OXIDE_MACHINES, NAMESPACE):
            metadata = document["metadata"]
            belongs_to = metadata.get("labels", {}).get(CLUSTER_LABEL)
            if MACHINE_FINALIZER in metadata.get("finalizers", ()) and belongs_to not in present:
                yield f"the OxideCluster {belongs_to} is gone before the machine {metadata['name']}"

    def _credentials_outlive_clusters(self) -> Iterator[str]:
        """The credentials stay as long as anything that was made with them, whoever deletes them (B27, M-11)."""
        rack = self._world.rack.state
        made = [mark for table in (rack.instances, rack.disks, rack.floating_ips) for _, mark in self._marked(table)]
        present = {document["metadata"]["name"] for document in self._world.store.list(SECRETS, NAMESPACE)}
        clusters = self._world.store.list(OXIDE_CLUSTERS, NAMESPACE)
        used = {document["spec"]["credentialsRef"]["name"] for document in clusters}
        if made and used - present:
            yield f"the credentials are gone before the {made[0].kind} {made[0].name}"

    def _secrets_stay_secret(self) -> Iterator[str]:
        """Neither user data nor a token is in a status, an Event or a description."""
        world = self._world
        rack = world.rack.state
        tables: tuple[Any, ...] = (rack.instances, rack.disks, rack.floating_ips, rack.anti_affinity_groups)
        told = [each.description for table in tables for each, _ in self._marked(table)]
        told += [message for _, _, message in world.recorded.events[self._events_seen :]]
        self._events_seen = len(world.recorded.events)
        for kind in (OXIDE_CLUSTERS, OXIDE_MACHINES):
            told += [str(document.get("status")) for document in world.store.list(kind, NAMESPACE)]
        everything = "\n".join(told)
        for secret in world.secrets():
            if secret in everything:
                yield "a secret is told in a status, an Event or a description"

    def _foreign_things(self) -> dict[str, Any]:
        rack = self._world.rack.state
        return {
            record.id: (
                record.name,
                record.description,
                getattr(record, "instance", None),
                getattr(record, "state", None),
            )
            for table in (rack.instances, rack.disks, rack.floating_ips)
            for record in table
            if parse_mark(record.description) is None
        }

    def _foreign_things_stay(self) -> Iterator[str]:
        """What is not ours is never touched, whatever its name (B15, B52)."""
        now = self._foreign_things()
        for identity, before in self._foreign.items():
            if now.get(identity) != before:
                yield f"{before[0]} is somebody else's and was {before}, now {now.get(identity)}"

    def _rules_of_others(self) -> dict[str, Any]:
        changes = ("id", "time_created", "time_modified")
        return {
            rule["name"]: {key: value for key, value in rule.items() if key not in changes}
            for vpc in self._world.rack.state.vpcs
            for rule in vpc.firewall_rules
            if parse_mark(rule["description"]) is None
        }

    def _firewall_is_right(self) -> Iterator[str]:
        """Others' rules are never changed, and ours are for the cluster's own instances, as long as there is one."""
        if self._rules_of_others() != self._foreign_rules:
            yield f"somebody else's firewall rules were {sorted(self._foreign_rules)}, now {self._rules_of_others()}"
        clusters = self._objects(OXIDE_CLUSTERS)
        self._own_names |= {instance.name for instance, _ in self._marked(self._world.rack.state.instances)}
        for vpc in self._world.rack.state.vpcs:
            for rule in vpc.firewall_rules:
                mark = parse_mark(rule["description"])
                if mark is None:
                    continue
                owner = clusters.get(mark.uid)
                if owner is None or CLUSTER_FINALIZER not in owner["metadata"].get("finalizers", ()):
                    yield f"firewall rule {rule['name']} is there, and no OxideCluster that would take it away"
                if not {target["value"] for target in rule["targets"]} <= self._own_names:
                    yield f"firewall rule {rule['name']} is for others than the cluster's instances"

    def _nothing_is_written_while_paused(self) -> Iterator[str]:
        """While a cluster is paused, nothing is written on the rack (C-PA-2)."""
        world = self._world
        paused = {
            cluster["metadata"]["name"]
            for cluster in world.store.list(CLUSTERS, NAMESPACE)
            if cluster["spec"].get("paused")
        }
        now = world.seconds
        self._paused_since = {name: self._paused_since.get(name, now) for name in paused}
        calls = world.rack.app.log.entries(self._calls_seen)
        if calls:
            self._calls_seen = calls[-1].number
        everything_rests = paused and len(paused) == len(world.store.list(CLUSTERS, NAMESPACE))
        if not everything_rests or now - max(self._paused_since.values()) < IN_FLIGHT_SECONDS:
            return
        for call in calls:
            if call.method != "GET":
                yield f"{call.operation} of {call.objects} was called while the cluster is paused"


def machines_of(world: World, cluster: str) -> list[Any]:
    """The Machines of a cluster."""
    return world.store.list(MACHINES, NAMESPACE, {CLUSTER_LABEL: cluster})
