"""A cluster's part of its VPC's firewall: read, compared, written whole, read again (see `firewall_plan`)."""

from __future__ import annotations

import dataclasses
from typing import Final

from capox.api import capi
from capox.api.v1alpha1 import ConditionType, OxideCluster, OxideMachine, Reason
from capox.kube.conditions import Finding
from capox.ownership import parse_mark
from capox.oxide import errors as oxide
from capox.oxide import models
from capox.oxide.shared_list import TRANSITION_SECONDS
from capox.oxide.snapshots import FloatingIpSnapshot, InstanceSnapshot, ObservedInstance
from capox.provider import firewall_plan as plan
from capox.provider.cluster_mark import cluster_mark
from capox.provider.cluster_rack import API_SERVER_PORT
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_MACHINES
from capox.provider.machine_instance import DEFAULT_NETWORK
from capox.provider.racks import Project, Sight
from capox.provider.trouble import of_rack_error
from capox.provider_id import parse_provider_id

__all__ = ["converge_firewall", "firewall_sight", "is_managed"]

STEPS_LIMIT: Final = 4
"""Written, read again, and once more if somebody else wrote in the same moment; the next period does the rest."""

_KIND: Final = ConditionType.FIREWALL_READY


def is_managed(cluster: OxideCluster) -> bool:
    """Whether the provider keeps the rules of a cluster."""
    return cluster.spec.firewall is not None and cluster.spec.firewall.mode == "Managed"


def firewall_sight(cluster_id: str, instances: InstanceSnapshot, floating_ips: FloatingIpSnapshot) -> Sight:
    """What the rules depend on: a cluster's instances, and the floating IPs that are its own or on one of those."""
    own = frozenset(instance.id for instance in instances if cluster_id in instance.description)
    addresses = frozenset(
        (each.id, each.description, each.instance_id)
        for each in floating_ips
        if each.instance_id in own or cluster_id in each.description
    )
    return (own, addresses)


async def converge_firewall(deps: Deps, project: Project, cluster: OxideCluster, cluster_name: str) -> Finding | None:
    """Bring our rules as far as they go now: those that are wanted where they are ours to keep, else none.

    Returns:
        What there is to tell; None when the cluster is being deleted and no rule of it is left.

    Raises:
        OxideError: The rack failed in a way that passes, or rules of a cluster that goes could not be taken away.
        KubeError: The machines could not be read.
    """
    is_deleting, vpc = cluster.metadata.is_being_deleted, cluster.spec.vpc or DEFAULT_NETWORK
    try:
        if is_deleting:
            step, _ = await _write(deps, project, cluster, vpc, None)
            contested = "somebody else writes the firewall rules all the time"
            return None if step == plan.Steady() else Finding(_KIND, "False", Reason.DELETING, contested)
        openings, is_complete = await _openings(deps, project, cluster, cluster_name)
        step, rules = await _write(deps, project, cluster, vpc, openings if is_managed(cluster) else None)
    except oxide.OxideError as error:
        if is_deleting and isinstance(error, oxide.ObjectNotFound):
            # The VPC is gone, with all its rules.
            return None
        trouble = of_rack_error(error)
        if is_deleting or trouble.reason not in {Reason.CREDENTIALS_INVALID, Reason.INVALID_SPEC}:
            raise
        advice = "; the user needs the role collaborator on the project" if isinstance(error, oxide.Forbidden) else ""
        return Finding(_KIND, "False", trouble.reason, f"firewall of VPC {vpc}: {trouble.message}{advice}")
    if isinstance(step, plan.Blocked):
        deps.recorder.warning(cluster, step.reason, step.message)
        return Finding(_KIND, "False", step.reason, step.message)
    subnets = (cluster.spec.subnet or DEFAULT_NETWORK,)
    lacks = "" if is_managed(cluster) else plan.missing(openings, rules, vpc=vpc, subnets=subnets)
    if lacks:
        return Finding(_KIND, "False", Reason.FIREWALL_RULE_MISSING, lacks)
    if isinstance(step, plan.WriteRules) or not is_complete:
        return Finding(_KIND, "False", Reason.FIREWALL_RULE_MISSING, "the rules are being written")
    return Finding(_KIND, "True", Reason.FIREWALL_RULES_IN_PLACE)


async def _write(
    deps: Deps, project: Project, cluster: OxideCluster, vpc: str, openings: plan.Openings | None
) -> tuple[plan.FirewallStep, tuple[models.VpcFirewallRule, ...]]:
    """Write until the rules that were read again are as they should be; gives the last step, and what was read."""
    desired = plan.desired_rules(openings) if openings is not None else ()
    client, mark = project.client, cluster_mark(cluster)
    for attempt in range(1, STEPS_LIMIT + 1):
        async with project.firewall_lock:
            rules = (await client.vpc_firewall_rules_view(vpc=vpc, project=project.name)).rules
            step = plan.plan_firewall(mark, desired, rules)
            if not isinstance(step, plan.WriteRules) or attempt == STEPS_LIMIT:
                return step, rules
            body = models.VpcFirewallRulesUpdate(rules=step.rules)
            await client.vpc_firewall_rules_update(body, vpc=vpc, project=project.name)
        deps.recorder.normal(
            cluster, "FirewallRulesWritten", f"Wrote {len(desired)} rules of the firewall of VPC {vpc}"
        )
    raise AssertionError("the last attempt returns")


async def _openings(
    deps: Deps, project: Project, cluster: OxideCluster, cluster_name: str
) -> tuple[plan.Openings, bool]:
    """What has to be let in, and whether all of it is known already."""
    spec, inventory = cluster.spec, project.inventory
    instances = await inventory.instances.recent(TRANSITION_SECONDS)
    floating_ips = await inventory.floating_ips.recent(TRANSITION_SECONDS)
    labels = {capi.CLUSTER_NAME_LABEL: cluster_name}
    machines = await deps.kube.list(OXIDE_MACHINES, cluster.metadata.namespace, labels)
    own = _own_instances(cluster, machines, instances)
    endpoint, firewall = spec.control_plane_endpoint, spec.firewall
    sources = firewall.api_server_sources if firewall is not None else ()
    openings = plan.Openings(
        mark=cluster_mark(cluster),
        api_port=endpoint.port if endpoint is not None and endpoint.port else API_SERVER_PORT,
        control_plane=tuple(sorted(instance.name for instance, is_control_plane in own if is_control_plane)),
        instances=tuple(sorted(instance.name for instance, _ in own)),
        sources=sources,
        services=plan.service_ports(floating_ips, spec.cluster_id or ""),
    )
    if not sources or not is_managed(cluster):
        return openings, True
    egress, is_complete = await project.egress.of(instance.id for instance, _ in own)
    floating = {each.ip for instance, _ in own for each in floating_ips.of_instance(instance.id)}
    return dataclasses.replace(openings, egress=egress | floating), is_complete


def _own_instances(
    cluster: OxideCluster, machines: list[OxideMachine], instances: InstanceSnapshot
) -> list[tuple[ObservedInstance, bool]]:
    """The cluster's instances, and whether each is one of the control plane: by recorded id, or by mark before that."""
    by_id = {parse_provider_id(each.spec.provider_id): each for each in machines if each.spec.provider_id}
    by_uid = {each.metadata.uid: each for each in machines}
    found = []
    for instance in instances:
        machine = by_id.get(str(instance.id))
        if machine is None and cluster.spec.cluster_id and cluster.spec.cluster_id in instance.description:
            mark = parse_mark(instance.description)
            machine = by_uid.get(mark.uid) if mark is not None else None
        if machine is not None:
            found.append((instance, capi.CONTROL_PLANE_LABEL in machine.metadata.labels))
    return found
