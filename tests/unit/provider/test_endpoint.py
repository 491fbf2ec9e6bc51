"""The plan of a cluster's endpoint: whose floating IP it is, and which machine carries it."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.api.v1alpha1 import Reason
from capox.ownership import OwnerMark, format_mark
from capox.oxide.models import InstanceState
from capox.oxide.snapshots import ObservedFloatingIp
from capox.provider import cluster_plan as plan
from capox.provider.endpoint_holder import Candidate, choose_holder

MOMENT = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)
POOL_ID = UUID("99999999-9999-4999-8999-999999999999")
STRANGER_ID = UUID("88888888-8888-4888-8888-888888888888")
CLUSTER_ID = "5f0c6a52-7f0e-4f0e-8a3e-2f6f3f0b9d77"
NAME = "capi-fip-team-web"
MARK = OwnerMark(kind="OxideCluster", namespace="team", name="web", uid="uid-1", cluster_id=CLUSTER_ID)

ENDPOINT = plan.Endpoint(
    mark=MARK,
    floating_ip_name=NAME,
    brought=None,
    address=ipaddress.ip_address("198.51.100.7"),
    host_name="",
    is_recorded=True,
    is_initialized=True,
    may_move=True,
)
UNRECORDED = dataclasses.replace(ENDPOINT, address=None, is_recorded=False)


def machine(number: int, **changes: Any) -> Candidate:
    """Give a control plane machine that is well, but for the changes."""
    well: dict[str, Any] = {
        "name": f"web-{number}",
        "instance_id": UUID(int=number),
        "run_state": "running",
        "is_being_deleted": False,
        "has_node": True,
        "is_api_server_healthy": True,
        "is_api_server_proven": False,
        "is_given_up": False,
        "version": "v1.36.3",
        "created": MOMENT + datetime.timedelta(minutes=number),
    }
    return Candidate(**well | changes)


def joining(number: int, **changes: Any) -> Candidate:
    """Give a machine that has an instance and no apiserver yet."""
    return machine(number, **{"has_node": False, "is_api_server_healthy": None} | changes)


def floating_ip(
    holder: int | UUID | None = None, *, description: str | None = None, name: str = NAME
) -> ObservedFloatingIp:
    """Give the floating IP of the cluster, or one that differs."""
    return ObservedFloatingIp(
        id=UUID("77777777-7777-4777-8777-777777777777"),
        name=name,
        description=format_mark(MARK) if description is None else description,
        ip=ipaddress.ip_address("198.51.100.7"),
        ip_pool_id=POOL_ID,
        instance_id=UUID(int=holder) if isinstance(holder, int) else holder,
    )


def seen(
    found: ObservedFloatingIp | None, *candidates: Candidate, namesake: ObservedFloatingIp | None = None
) -> plan.Seen:
    """Give an observation."""
    return plan.Seen(floating_ip=found, namesake=namesake or found, candidates=candidates)


class TestWhoseFloatingIp:
    """The floating IP of an endpoint is found by its address, and touched only when it is ours to touch."""

    def test_nothing_there_is_allocated(self) -> None:
        """A cluster without a floating IP gets one, before any machine exists (M-20)."""
        assert plan.plan_endpoint(UNRECORDED, seen(None)) == plan.Allocate()

    def test_lost_one_is_allocated_again_under_its_address(self) -> None:
        """The endpoint of a living cluster keeps its address (C-IC-3)."""
        assert plan.plan_endpoint(ENDPOINT, seen(None)) == plan.Allocate()

    def test_found_one_is_recorded(self) -> None:
        """A floating IP whose creation was never answered is found by its mark."""
        found = floating_ip()
        assert plan.plan_endpoint(UNRECORDED, seen(found)) == plan.RecordEndpoint(found)

    def test_go_providers_is_ours(self) -> None:
        """Without a mark the Go provider's deterministic name makes it ours."""
        assert plan.is_ours(floating_ip(description=""), ENDPOINT)
        assert not plan.is_ours(floating_ip(description="", name="by-hand"), ENDPOINT)

    def test_name_alone_makes_nothing_ours(self) -> None:
        """An unmarked floating IP of our name is a stranger's unless this cluster has recorded its address."""
        unmarked = floating_ip(STRANGER_ID, description="")
        assert not plan.is_ours(unmarked, UNRECORDED)
        for endpoint in (ENDPOINT, UNRECORDED):
            assert isinstance(plan.plan_endpoint(endpoint, seen(unmarked, machine(1))), plan.Blocked)
            assert plan.plan_release(endpoint, seen(unmarked)) == plan.Finished()

    def test_unanswered_creation_is_waited_for_at_the_end(self) -> None:
        """A floating IP whose creation was given up may still appear; the cluster stays until that is known."""
        waiting = dataclasses.replace(seen(None), is_settled=False)
        assert isinstance(plan.plan_release(UNRECORDED, waiting), plan.Wait)
        assert plan.plan_release(UNRECORDED, seen(None)) == plan.Finished()

    def test_moved_cluster_keeps_its_own(self) -> None:
        """The clusterID decides, not the UID, which changes when a cluster is moved (C-OW-4, B43)."""
        moved = dataclasses.replace(ENDPOINT, mark=dataclasses.replace(MARK, uid="uid-after-move"))
        assert plan.is_ours(floating_ip(), moved)

    @pytest.mark.parametrize("change", [{"cluster_id": "another"}, {"name": "other"}, {"kind": "Service"}])
    def test_another_owners_is_a_conflict(self, change: dict[str, Any]) -> None:
        """Same name or same address, other mark: nothing is touched, in life and at the end (B52)."""
        strangers = floating_ip(1, description=format_mark(dataclasses.replace(MARK, uid="uid-2", **change)))

        recorded = plan.plan_endpoint(ENDPOINT, seen(strangers, machine(1)))
        by_name = plan.plan_endpoint(UNRECORDED, seen(None, namesake=strangers))
        released = plan.plan_release(ENDPOINT, seen(strangers))

        assert isinstance(recorded, plan.Blocked)
        assert isinstance(by_name, plan.Blocked)
        assert recorded.reason == by_name.reason == Reason.NAME_CONFLICT
        assert released == plan.Finished()

    def test_unmarked_one_on_a_stranger_is_a_conflict(self) -> None:
        """An address that somebody uses is not stolen (M-30)."""
        used = floating_ip(STRANGER_ID, description="", name="by-hand")
        step = plan.plan_endpoint(ENDPOINT, seen(used, machine(1)))
        assert isinstance(step, plan.Blocked)
        assert step.reason == Reason.NAME_CONFLICT

    def test_brought_one_that_is_missing_is_named(self) -> None:
        """The message names field and remedy."""
        step = plan.plan_endpoint(dataclasses.replace(UNRECORDED, brought="mine"), seen(None))
        assert isinstance(step, plan.Blocked)
        assert "spec.controlPlaneFloatingIP" in step.message

    def test_name_as_host_needs_another_mode(self) -> None:
        """A DNS name as host cannot be allocated."""
        step = plan.plan_endpoint(dataclasses.replace(ENDPOINT, address=None, host_name="api.example"), seen(None))
        assert isinstance(step, plan.Blocked)
        assert step.reason == Reason.INVALID_SPEC


class TestRelease:
    """At the end ours is deleted, and what is not ours stays."""

    def test_ours_is_detached_then_deleted(self) -> None:
        """B13: no floating IP is left behind."""
        assert plan.plan_release(ENDPOINT, seen(floating_ip(3))) == plan.Detach(floating_ip(3), None)
        assert plan.plan_release(ENDPOINT, seen(floating_ip())) == plan.DeleteFloatingIp(floating_ip())
        assert plan.plan_release(ENDPOINT, seen(None)) == plan.Finished()

    def test_what_was_brought_or_adopted_by_address_stays(self) -> None:
        """B14: what the user made is never deleted."""
        by_hand = floating_ip(description="", name="by-hand")
        brought = dataclasses.replace(ENDPOINT, brought="by-hand")
        assert plan.plan_release(brought, seen(by_hand)) == plan.Finished()
        assert plan.plan_release(ENDPOINT, seen(by_hand)) == plan.Finished()


class TestHolder:
    """Who carries the endpoint (M-24 to M-31)."""

    def test_first_machine_gets_it_at_once(self) -> None:
        """M-27: kubeadm init may need the endpoint."""
        first = joining(1)
        step = plan.plan_endpoint(dataclasses.replace(ENDPOINT, is_initialized=False), seen(floating_ip(), first))
        assert step == plan.Attach(floating_ip(), first)

    def test_first_machine_is_awaited_until_it_can_be_attached(self) -> None:
        """Semantics 3.2: a starting instance takes no address."""
        not_yet = dataclasses.replace(ENDPOINT, is_initialized=False)
        step = plan.plan_endpoint(not_yet, seen(floating_ip(), joining(1, run_state="starting")))
        assert step == plan.Wait("the instance of web-1 is starting")

    def test_replacement_of_the_first_gets_it(self) -> None:
        """M-27: when the first machine is replaced before it answered, its replacement carries the endpoint."""
        dying, fresh = joining(1, is_being_deleted=True), joining(2)
        not_yet = dataclasses.replace(ENDPOINT, is_initialized=False)
        assert plan.plan_endpoint(not_yet, seen(floating_ip(1), dying, fresh)) == plan.Detach(floating_ip(1), fresh)

    def test_joining_machine_never_gets_it(self) -> None:
        """M-26: kubeadm join would talk to itself."""
        dying = machine(1, is_being_deleted=True)
        step = plan.plan_endpoint(ENDPOINT, seen(floating_ip(1), dying, joining(2)))
        assert isinstance(step, plan.Placed)
        assert step.holder == dying
        assert "being deleted" in step.warning

    def test_leaves_a_machine_that_is_being_deleted(self) -> None:
        """M-24: at the Machine's deletion, before its apiserver dies."""
        dying, other = machine(1, is_being_deleted=True), machine(2)
        assert plan.plan_endpoint(ENDPOINT, seen(floating_ip(1), dying, other)) == plan.Detach(floating_ip(1), other)
        assert plan.plan_endpoint(ENDPOINT, seen(floating_ip(), dying, other)) == plan.Attach(floating_ip(), other)

    def test_dark_endpoint_does_not_hide_the_living(self) -> None:
        """M-28: with the endpoint dark everybody is Unknown; a Node that had joined is taken."""
        gone = machine(1, run_state=None, is_api_server_healthy=None)
        silent = machine(2, is_api_server_healthy=None)
        step = plan.plan_endpoint(ENDPOINT, seen(floating_ip(), gone, silent))
        assert step == plan.Attach(floating_ip(), silent)

    def test_newest_version_is_preferred(self) -> None:
        """M-28: so that the next step of a rollout forces no other move; versions compare as numbers."""
        machines = [machine(1, is_being_deleted=True), machine(2, version="v1.9.9"), machine(3, version="v1.10.0")]
        chosen = choose_holder(machines, UUID(int=1), is_initialized=True)
        assert chosen == machines[2]

    def test_failed_holder_is_stopped_first(self) -> None:
        """Semantics 3.2: nothing can be detached from a failed instance."""
        step = plan.plan_endpoint(ENDPOINT, seen(floating_ip(1), machine(1, run_state="failed"), machine(2)))
        assert step == plan.StopFailedHolder(UUID(int=1))

    def test_moves_are_rare(self) -> None:
        """M-29: not twice within half a minute."""
        lately = dataclasses.replace(ENDPOINT, may_move=False)
        dying = machine(1, is_being_deleted=True)
        assert isinstance(plan.plan_endpoint(lately, seen(floating_ip(1), dying, machine(2))), plan.Wait)

    @given(
        states=st.lists(
            st.tuples(
                st.sampled_from([None, *InstanceState]),
                st.booleans(),
                st.booleans(),
                st.sampled_from([True, False, None]),
                st.booleans(),
            ),
            min_size=1,
            max_size=5,
        ),
        holder=st.integers(0, 6),
        is_initialized=st.booleans(),
    )
    def test_choice_is_stable_and_never_worse(
        self, states: list[tuple[Any, bool, bool, Any, bool]], holder: int, is_initialized: bool
    ) -> None:
        """Whatever the state of the control plane: who was chosen is chosen again, and no joiner ever takes over."""
        machines = [
            machine(
                number,
                run_state=None if state is None else str(state),
                is_being_deleted=deleting,
                has_node=has_node,
                is_api_server_healthy=healthy,
                is_given_up=given_up,
            )
            for number, (state, deleting, has_node, healthy, given_up) in enumerate(states, start=1)
        ]
        holder_id = UUID(int=holder) if holder else None

        chosen = choose_holder(machines, holder_id, is_initialized=is_initialized)

        if chosen is None:
            return
        assert choose_holder(machines, chosen.instance_id, is_initialized=is_initialized) == chosen
        if chosen.instance_id != holder_id:
            assert chosen.can_be_attached
            assert not chosen.is_being_deleted
            assert chosen.has_node or not is_initialized
