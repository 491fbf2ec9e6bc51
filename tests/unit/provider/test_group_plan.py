"""The plan of a cluster's anti-affinity groups: which one a new instance joins, and which go."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any
from uuid import UUID

import pytest

from capox.api import capi
from capox.api.v1alpha1 import OxideCluster, Reason
from capox.ownership import OwnerMark, format_mark, parse_mark
from capox.oxide.models import AffinityPolicy
from capox.oxide.snapshots import ObservedAntiAffinityGroup, ObservedInstance
from capox.provider import group_plan as plan
from capox.provider.cluster_mark import cluster_mark
from capox.provider.group_seats import SEAT_SECONDS, Seats

MOMENT = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)
MARK = OwnerMark(kind="OxideCluster", namespace="team", name="web", uid="uid-1", cluster_id="c1")
WORKERS = plan.WantedGroup(
    mark=dataclasses.replace(MARK, further={"role": "md-blue"}), role="md-blue", policy=AffinityPolicy.ALLOW
)
BOTH = {"controlPlane": {"policy": "fail"}, "workers": {"policy": "allow"}}


def cluster(**spec: Any) -> OxideCluster:
    """Give an OxideCluster."""
    document = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "OxideCluster",
        "metadata": {"name": "web", "namespace": "team", "uid": "uid-1"},
        "spec": {"credentialsRef": {"name": "credentials"}, "project": "demo", "clusterID": "c1", **spec},
    }
    return OxideCluster.model_validate(document)


def group(index: int, *, mark: OwnerMark = WORKERS.mark, policy: str = "allow") -> ObservedAntiAffinityGroup:
    """Give a group as the rack shows it."""
    return ObservedAntiAffinityGroup(
        id=UUID(int=index + 1), name=WORKERS.name(index), description=format_mark(mark), policy=policy
    )


def instance(number: int, group_id: UUID | None, **changes: Any) -> ObservedInstance:
    """Give an instance whose mark tells a group."""
    further = {plan.GROUP_WORD: group_id.hex} if group_id is not None else {}
    mark = OwnerMark(kind="OxideMachine", namespace="team", name="web", uid=f"machine-{number}", further=further)
    well: dict[str, Any] = {
        "id": UUID(int=number),
        "name": f"capi-team-web-{number}",
        "description": format_mark(mark),
        "hostname": "web",
        "run_state": "running",
        "ncpus": 4,
        "memory_bytes": 2**33,
        "boot_disk_id": None,
        "auto_restart_enabled": True,
        "auto_restart_cooldown_expiration": None,
        "time_created": MOMENT,
        "time_run_state_updated": MOMENT,
    }
    return ObservedInstance(**well | changes)


@pytest.mark.parametrize(
    ("spec", "labels", "role", "policy"),
    [
        (BOTH, {capi.CONTROL_PLANE_LABEL: ""}, "control-plane", "fail"),
        (BOTH, {capi.DEPLOYMENT_NAME_LABEL: "blue"}, "md-blue", "allow"),
        (BOTH, {}, "workers", "allow"),
        ({"workers": {"policy": "fail"}}, {capi.CONTROL_PLANE_LABEL: ""}, None, None),
        ({"controlPlane": {"policy": "fail"}}, {}, None, None),
        ({}, {}, None, None),
    ],
)
def test_one_group_a_role_and_deployment(
    spec: dict[str, Any], labels: dict[str, str], role: str | None, policy: str | None
) -> None:
    """The control plane has a group, and each MachineDeployment has one; a role that was not asked for has none."""
    found = cluster(antiAffinity=spec)

    wanted = plan.wanted_group(found, cluster_mark(found), labels)

    assert (wanted.role if wanted else None) == role
    assert (wanted.policy if wanted else None) == policy
    assert plan.wanted_group(cluster(), MARK, labels) is None


def test_the_first_group_with_room_is_joined() -> None:
    """A group has at most 32 members; the next machine gets a further group (semantics 2.2)."""
    first, second = group(0), group(1)

    assert plan.plan_group(WORKERS, [], {}, set()) == plan.MakeGroup(WORKERS.name(0))
    assert plan.plan_group(WORKERS, [first], {first.id: 31}, set()) == plan.JoinGroup(first.id)
    assert plan.plan_group(WORKERS, [first], {first.id: 32}, set()) == plan.MakeGroup(WORKERS.name(1))
    assert plan.plan_group(WORKERS, [first, second], {first.id: 32}, set()) == plan.JoinGroup(second.id)
    assert plan.plan_group(WORKERS, [first, second], {}, {first.id}) == plan.JoinGroup(second.id)


def test_another_policy_is_another_group() -> None:
    """The policy of a group cannot be changed (semantics 8)."""
    assert plan.plan_group(WORKERS, [group(0, policy="fail")], {}, set()) == plan.MakeGroup(WORKERS.name(1))


@pytest.mark.parametrize(
    "mark",
    [
        dataclasses.replace(WORKERS.mark, uid="uid-2", cluster_id="c2"),
        dataclasses.replace(WORKERS.mark, uid="uid-2", name="other"),
        dataclasses.replace(WORKERS.mark, further={"role": "md-green"}),
    ],
)
def test_a_namesake_is_never_joined(mark: OwnerMark) -> None:
    """A group of our name without our mark is somebody's (B52)."""
    step = plan.plan_group(WORKERS, [group(0, mark=mark)], {}, set())

    assert isinstance(step, plan.Blocked)
    assert step.reason == Reason.NAME_CONFLICT


def test_moved_cluster_keeps_its_groups() -> None:
    """The clusterID decides, not the UID (B43)."""
    moved = dataclasses.replace(WORKERS, mark=dataclasses.replace(WORKERS.mark, uid="moved"))

    assert plan.plan_group(moved, [group(0)], {}, set()) == plan.JoinGroup(group(0).id)
    assert plan.is_own(group(0), moved.mark)


def test_empty_groups_go_and_all_at_the_end() -> None:
    """A group that nobody is in is deleted; with its cluster every group is."""
    first, second = group(0), group(1)
    members = plan.members_by_group([instance(1, first.id), instance(2, None)])

    assert plan.plan_removal([first, second], members, is_deleting=False) == plan.DeleteGroup(second)
    assert plan.plan_removal([first], members, is_deleting=False) == plan.Steady()
    assert plan.plan_removal([first], members, is_deleting=True) == plan.DeleteGroup(first)
    assert plan.plan_removal([], members, is_deleting=True) == plan.Steady()


def test_members_are_told_by_marks() -> None:
    """The list of instances tells the members of all groups; what is no mark of ours tells nothing."""
    first = group(0)
    by_hand = instance(3, None, description=f"made by hand group={first.id.hex}")
    garbled = instance(4, None, description="Managed by capox: kind=OxideMachine object=a/b group=none")

    found = plan.members_by_group([instance(1, first.id), instance(2, first.id), by_hand, garbled])

    assert found == {first.id: {"machine-1", "machine-2"}}


def test_longest_mark_with_a_group_fits() -> None:
    """The longest names, with a group, are within what the rack stores."""
    mark = OwnerMark(
        kind="OxideMachine",
        namespace="n" * 63,
        name="m" * 253,
        uid=str(UUID(int=1)),
        cluster_id="c" * 63,
        further={plan.GROUP_WORD: UUID(int=1).hex},
    )

    assert parse_mark(format_mark(mark)) == mark


class Time:
    """A clock on command."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        """Give the present moment."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


def test_places_under_way_are_counted_once() -> None:
    """A place counts from before the instance is made until a list shows it, and not for ever."""
    clock, first, second = Time(), group(0).id, group(1).id
    seats = Seats(clock)
    for uid in ("a", "b", "c"):
        seats.take(uid, first)
    seats.leave("c")

    assert seats.count({}) == {first: 2}
    assert seats.count({first: {"a"}, second: {"z"}}) == {first: 2, second: 1}
    assert seats.count({first: {"a"}}) == {first: 2}
    clock.seconds = SEAT_SECONDS
    assert seats.count({first: {"a"}}) == {first: 1}


def test_a_closed_group_is_offered_no_more() -> None:
    """What the rack has refused is believed."""
    seats = Seats(Time())
    seats.close(group(0).id)

    assert plan.plan_group(WORKERS, [group(0)], seats.count({}), seats.full) == plan.MakeGroup(WORKERS.name(1))
