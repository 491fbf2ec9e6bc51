"""The plan of one machine, as tables from what is wanted and seen to the next step."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from uuid import UUID

import pytest

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, format_mark
from capox.oxide.models import Disk, DiskAttachmentState, InstanceState
from capox.oxide.snapshots import ObservedInstance
from capox.provider import machine_plan as plan

MOMENT = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)
OWN_ID = UUID("11111111-1111-4111-8111-111111111111")
OTHER_ID = UUID("22222222-2222-4222-8222-222222222222")
DISK_ID = UUID("33333333-3333-4333-8333-333333333333")
UID = "44444444-4444-4444-8444-444444444444"
NAME = "capi-team-web-0"
OWN_MARK = format_mark(OwnerMark(kind="OxideMachine", namespace="team", name="web-0", uid=UID))

UNRECORDED = plan.Identity(instance_id=None, name=NAME, uid=UID, owner=("team", "web-0"))
RECORDED = plan.Identity(instance_id=OWN_ID, name=NAME, uid=UID, owner=("team", "web-0"))


def instance(state: str = "running", *, identity: UUID = OWN_ID, description: str = OWN_MARK) -> ObservedInstance:
    """Give an instance in a list."""
    return ObservedInstance(
        id=identity,
        name=NAME,
        description=description,
        hostname=NAME,
        run_state=state,
        ncpus=4,
        memory_bytes=2**33,
        boot_disk_id=DISK_ID,
        auto_restart_enabled=True,
        auto_restart_cooldown_expiration=None,
        time_created=MOMENT,
        time_run_state_updated=MOMENT,
    )


def disk(state: str, holder: UUID | None = None) -> Disk:
    """Give a recorded disk."""
    return Disk(
        id=DISK_ID,
        name="capi-boot-team-web-0",
        description=OWN_MARK,
        time_created=MOMENT,
        time_modified=MOMENT,
        project_id=OTHER_ID,
        size=2**30,
        block_size=512,
        state=DiskAttachmentState(state=state, instance=holder),
        device_path="/mnt/capi-boot-team-web-0",
        disk_type="distributed",
        read_only=False,
    )


def seen(
    found: ObservedInstance | None = None,
    *,
    proven: bool = True,
    disks: tuple[Disk, ...] | None = None,
    holds_endpoint: bool = False,
) -> plan.Observation:
    """Give an observation."""
    return plan.Observation(
        instance=found,
        is_absence_proven=proven and found is None,
        recorded_disks=disks,
        is_endpoint_holder=holds_endpoint,
    )


@pytest.mark.parametrize(
    ("identity", "observation", "expected"),
    [
        (UNRECORDED, seen(), plan.Create()),
        (UNRECORDED, seen(proven=False), plan.Wait("finding out whether the instance exists")),
        (UNRECORDED, seen(instance("creating")), plan.RecordInstance(OWN_ID)),
        (UNRECORDED, seen(instance("failed")), plan.RecordInstance(OWN_ID)),
        (RECORDED, seen(), plan.Vanished()),
        (RECORDED, seen(proven=False), plan.Wait("finding out whether the instance exists")),
        (RECORDED, seen(instance("running")), plan.Steady()),
        (RECORDED, seen(instance("failed")), plan.Steady()),
        (RECORDED, seen(instance("a-new-word")), plan.Steady()),
        (RECORDED, seen(instance("starting")), plan.Wait("the instance is starting")),
        (RECORDED, seen(instance("stopping")), plan.Wait("the instance is stopping")),
        (RECORDED, seen(instance("stopped")), plan.Start(OWN_ID)),
    ],
)
def test_towards_an_instance(
    identity: plan.Identity, observation: plan.Observation, expected: plan.MachineStep
) -> None:
    """Make it once, record it, keep it running, never make it again (C-IM-3, C-IM-9, B1, B2)."""
    assert plan.plan_present(identity, observation, keeps_running=True) == expected


def test_stopped_instance_may_be_left_alone() -> None:
    """With powerPolicy Observe a stopped instance is reported and nothing more (C-IM-10)."""
    assert plan.plan_present(RECORDED, seen(instance("stopped")), keeps_running=False) == plan.Steady()


@pytest.mark.parametrize(
    "description",
    [
        "",
        "somebody's instance",
        format_mark(OwnerMark(kind="OxideMachine", namespace="team", name="web-0", uid="another-uid")),
        format_mark(OwnerMark(kind="Service", namespace="team", name="web-0", uid=UID)),
    ],
)
def test_namesake_is_never_taken(description: str) -> None:
    """An instance of our name without our mark is somebody's: not adopted, not deleted (B52)."""
    stranger = instance(identity=OTHER_ID, description=description)

    towards = plan.plan_present(UNRECORDED, seen(stranger), keeps_running=True)
    away = plan.plan_absent(UNRECORDED, seen(stranger, disks=()))

    assert isinstance(towards, plan.Blocked)
    assert towards.reason == Reason.NAME_CONFLICT
    assert away == plan.Finished()


def marked(namespace: str = "team", name: str = "web-0", cluster: str = "c1") -> str:
    """Give the mark of an object, with another UID than ours."""
    return format_mark(OwnerMark(kind="OxideMachine", namespace=namespace, name=name, uid="other", cluster_id=cluster))


@pytest.mark.parametrize(
    ("description", "instance_name", "is_ours"),
    [
        (marked(), "capi-anything", True),  # after a move: a new UID
        (marked(name="web-1"), NAME, False),  # somebody wrote another machine's providerID into ours
        (marked(namespace="other"), NAME, False),
        (marked(cluster="c2"), NAME, False),
        ("", NAME, True),  # the Go provider's
        ("made by hand", "by-hand", False),
    ],
)
def test_recorded_id_alone_proves_nothing(description: str, instance_name: str, *, is_ours: bool) -> None:
    """Anybody may write a providerID: an instance that is another's is neither reported as ours nor deleted."""
    identity = dataclasses.replace(RECORDED, cluster_id="c1")
    found = dataclasses.replace(instance(description=description), name=instance_name)

    towards = plan.plan_present(identity, seen(found), keeps_running=True)
    away = plan.plan_absent(identity, seen(found, disks=()))

    assert (towards == plan.Steady()) is is_ours
    assert (away == plan.Stop(OWN_ID)) is is_ours
    if not is_ours:
        assert away == plan.Finished()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("creating", plan.Wait("the instance is creating; it can be stopped and deleted later")),
        ("starting", plan.Stop(OWN_ID)),
        ("running", plan.Stop(OWN_ID)),
        ("rebooting", plan.Stop(OWN_ID)),
        ("migrating", plan.Stop(OWN_ID)),
        ("stopping", plan.Wait("the instance is stopping; it can be stopped and deleted later")),
        ("stopped", plan.DeleteInstance(OWN_ID)),
        ("failed", plan.DeleteInstance(OWN_ID)),
        ("a-new-word", plan.Wait("the instance is a-new-word; it can be stopped and deleted later")),
    ],
)
def test_towards_nothing_by_state(state: str, expected: plan.MachineStep) -> None:
    """Only what stands still is deleted, and nothing is asked that the rack would refuse (M-6, semantics 3.2)."""
    assert plan.plan_absent(RECORDED, seen(instance(state), disks=())) == expected


def test_disks_are_recorded_before_anything_is_destroyed() -> None:
    """Which disks are ours can only be told while they are attached (B10, B11)."""
    for state in set(InstanceState) - {InstanceState.CREATING}:
        step = plan.plan_absent(RECORDED, seen(instance(state), disks=None))
        assert step == plan.RecordDisks(OWN_ID)


def test_disks_are_not_recorded_while_they_are_being_made() -> None:
    """An instance that is still creating has not all its disks yet; what is not recorded would be left (seed 7)."""
    assert isinstance(plan.plan_absent(RECORDED, seen(instance("creating"), disks=None)), plan.Wait)


def test_own_instance_without_a_record_is_recorded_first() -> None:
    """An instance whose create was never answered is deleted like any other (B2, M-5)."""
    assert plan.plan_absent(UNRECORDED, seen(instance())) == plan.RecordInstance(OWN_ID)


def test_endpoint_leaves_first() -> None:
    """The instance that carries the endpoint waits until it has moved (M-32)."""
    assert isinstance(plan.plan_absent(RECORDED, seen(instance(), disks=(), holds_endpoint=True)), plan.Wait)


@pytest.mark.parametrize(
    ("disks", "expected"),
    [
        ((), plan.Finished()),
        (None, plan.Finished()),
        ((disk("detached"),), plan.DeleteDisk(DISK_ID)),
        ((disk("faulted"),), plan.DeleteDisk(DISK_ID)),
        ((disk("creating"),), plan.Wait("disk capi-boot-team-web-0 is creating; it can be deleted later")),
    ],
)
def test_disks_go_after_the_instance(disks: tuple[Disk, ...] | None, expected: plan.MachineStep) -> None:
    """The machine is finished when neither instance nor recorded disk is left (B11)."""
    assert plan.plan_absent(RECORDED, seen(disks=disks)) == expected


def test_disk_on_another_instance_stays() -> None:
    """A recorded disk that somebody has attached elsewhere is not pulled from there."""
    step = plan.plan_absent(RECORDED, seen(disks=(disk("attached", OTHER_ID),)))

    assert isinstance(step, plan.Blocked)
    assert str(OTHER_ID) in step.message


def test_doubt_destroys_nothing() -> None:
    """As long as absence is not proven, nothing is made, deleted or finished (C-IM-11, B44)."""
    for identity, disks in itertools.product((UNRECORDED, RECORDED), (None, (), (disk("detached"),))):
        doubtful = seen(proven=False, disks=disks)
        assert isinstance(plan.plan_present(identity, doubtful, keeps_running=True), plan.Wait)
        assert isinstance(plan.plan_absent(identity, doubtful), plan.Wait)
