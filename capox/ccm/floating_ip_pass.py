"""One pass over one Service's floating IPs: observe, plan, one rack call, observe again.

Every error of a call comes back as data: what passes by itself is tried again soon, what the rack refuses is said in an
Event and tried again later or elsewhere (S23). After a call whose outcome is not known the floating IP is viewed before
anything else is done (S24).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Final

import structlog

from capox.ccm import floating_ip_plan as plan
from capox.ccm.firewall_plan import Guest
from capox.ccm.floating_ip_match_plan import family_of
from capox.ccm.floating_ip_outcome import outcome_of
from capox.ccm.floating_ip_rack import FloatingIpRack, Memory, View
from capox.ccm.load_balancer import Publish
from capox.ccm.placement import Port
from capox.ccm.service_mark import names_for
from capox.ccm.wanted import Notice, Outcome, Refusal, Surroundings, Wanted
from capox.oxide import errors as oxide
from capox.oxide import models
from capox.oxide.clock import Clock
from capox.oxide.shared_list import REST_SECONDS, TRANSITION_SECONDS

__all__ = ["FloatingIpPass"]

STEPS_LIMIT: Final = 24
"""More steps than any Service needs; a plan that goes round in circles must not keep a worker."""

PREPARE_SECONDS: Final = 2.0
"""How long nodes get to follow the status before a holder that works lets go (V7)."""

WATCHFUL_SECONDS: Final = 5.0
"""How old lists may be while a node is not well."""

QUICK_FIRST_SECONDS: Final = 2.0
"""When to try again what passes by itself (S23)."""

QUICK_CAP_SECONDS: Final = 30.0
"""The longest pause between two such attempts."""

SLOW_SECONDS: Final = 300.0
"""When to try again what a person has to put right."""

BLOCKED_SECONDS: Final = 15.0
"""When to try again what an instance stands in the way of."""

BARRED_SECONDS: Final = 120.0
"""How long an instance is passed over that an address could not be attached to."""

ATTEMPTS_MAX: Final = 4
"""How often attaching to one instance is tried before another one is."""

UNSERVED_SECONDS: Final = 20.0
"""How long the status may name a node that is to get an address and has not got it."""

CREATE_SETTLES_SECONDS: Final = 60.0
"""How long after an unanswered create what it makes may still appear (semantics 1.3)."""

_UNANSWERED: Final = (oxide.TransportError, oxide.ResponseError, oxide.InternalError, oxide.ServiceUnavailable)
_REFUSED: Final = (
    oxide.InvalidRequest,
    oxide.InvalidValue,
    oxide.ObjectNotFound,
    oxide.ObjectAlreadyExists,
    oxide.Conflict,
    oxide.Gone,
    oxide.InsufficientCapacity,
)


class FloatingIpPass:
    """The pass.

    Args:
        rack: What all Services share of the project.
        clock: What times go by.
        wanted: What the Service wants.
        surroundings: What is around it.
        memory: What is remembered of earlier passes.
        refused_uids: Services that cannot be served as they are.
    """

    def __init__(
        self,
        rack: FloatingIpRack,
        clock: Clock,
        *,
        wanted: Wanted,
        surroundings: Surroundings,
        memory: Memory,
        refused_uids: Collection[str] = (),
    ) -> None:
        self._rack = rack
        self._clock = clock
        self._wanted = wanted
        self._surroundings = surroundings
        self._memory = memory
        self._refused_uids = refused_uids
        self._notices: list[Notice] = []
        self._has_freed = False
        self._is_acting = False
        self._log = structlog.get_logger().bind(Service=str(wanted.owner))

    async def ensure(self, publish: Publish) -> Outcome:
        """Bring the addresses as far as they go now.

        Raises:
            OxideError: The rack could not be read.
        """
        for _ in range(STEPS_LIMIT):
            view = await self._look()
            step = plan.plan_step(view.picture)
            if isinstance(step, plan.Prepare):
                await publish(step.entries)
                self._wanted = dataclasses.replace(self._wanted, published=step.entries)
                if step.is_graceful:
                    await self._clock.sleep(PREPARE_SECONDS)
                continue
            if isinstance(step, plan.Stuck):
                return self._on_stuck(view, step)
            if isinstance(step, plan.Steady):
                return await self._on_steady(view)
            ended = await self._try(view, step)
            if ended is not None:
                return ended
        return self._quick(None)

    async def release(self) -> Outcome:
        """Give everything up.

        Raises:
            OxideError: The rack could not be read.
        """
        for _ in range(STEPS_LIMIT):
            view = await self._look(is_placed=False)
            step = plan.plan_release(view.picture)
            if isinstance(step, plan.Finished):
                return self._on_finished(view)
            if isinstance(step, plan.Stuck):
                return self._on_stuck(view, step)
            ended = await self._try(view, step)
            if ended is not None:
                return ended
        return self._quick(None)

    # -- how a pass ends ----------------------------------------------------------------------------------------------

    async def _on_steady(self, view: View) -> Outcome:
        self._memory.failures, self._memory.unserved_since = 0, None
        outcome = outcome_of(view, view.picture.wanted)
        warnings = await self._look_at_firewall(view) if outcome.is_complete else ()
        return dataclasses.replace(
            outcome,
            notices=(*self._notices, *outcome.notices, *warnings),
            has_freed=self._has_freed or outcome.has_freed,
        )

    async def _look_at_firewall(self, view: View) -> tuple[Notice, ...]:
        """Tell of ports that the firewall lets nobody in at (4.3); one that cannot be read is no reason to fail."""
        closed: set[Port] = set()
        for floating_ip in view.picture.serving:
            holder = floating_ip.instance_id
            instance = view.instances.by_id(holder) if holder is not None else None
            primary = view.primaries.get(holder) if holder is not None else None
            if instance is None or primary is None or primary.vpc_id is None:
                continue
            guest = Guest(instance.name, primary.addresses.get(family_of(floating_ip), ""), primary.vpc_id)
            try:
                closed.update(await self._rack.closed_ports(guest, self._wanted.ports))
            except oxide.OxideError as error:
                self._log.info("The firewall cannot be looked at", error=str(error))
        if not closed:
            return ()
        ports = ", ".join(str(port) for port in sorted(closed))
        message = f"no rule of the VPC's firewall lets {ports} in to the nodes; add an inbound allow rule for it"
        return (Notice("FirewallRuleMissing", message),)

    def _on_stuck(self, view: View, step: plan.Stuck) -> Outcome:
        if step.is_passing:
            return self._quick(view)
        message = f"floating IP {step.floating_ip.ip} cannot be taken away: {step.cause}; stop or delete that instance"
        return self._blocked(view, message)

    def _on_finished(self, view: View) -> Outcome:
        """Nothing is left, if no request to make something can still be under way."""
        memory, now_seconds = self._memory, self._clock.monotonic()
        is_fresh = not memory.is_known and not self._notices and not self._wanted.published
        memory.is_known = True
        if is_fresh and memory.unanswered_at is None:
            # A process before this one may have asked for an address and not lived to see it.
            memory.unanswered_at = now_seconds
        if memory.unanswered_at is not None:
            left = memory.unanswered_at + CREATE_SETTLES_SECONDS - view.floating_ips_began.seconds
            if left > 0:
                memory.last_act = None
                return self._outcome(retry_seconds=max(left - (now_seconds - view.floating_ips_began.seconds), 1.0))
        return self._outcome(is_complete=True)

    def _quick(self, view: View | None, error: oxide.OxideError | None = None) -> Outcome:
        """Come back soon. A status that names a node which has no address is put right when that takes long."""
        memory = self._memory
        pause = min(QUICK_FIRST_SECONDS * 2.0**memory.failures, QUICK_CAP_SECONDS)
        memory.failures = min(memory.failures + 1, 10)
        asked_seconds = getattr(error, "retry_after_seconds", None)
        entries = None
        if view is not None and view.picture.decisions:
            honest, now_seconds = plan.entries(view.picture), self._clock.monotonic()
            if not set(self._wanted.published) <= set(honest):
                memory.unserved_since = now_seconds if memory.unserved_since is None else memory.unserved_since
                entries = honest if now_seconds - memory.unserved_since > UNSERVED_SECONDS else None
        outcome = self._outcome(retry_seconds=max(pause, asked_seconds or 0.0))
        return dataclasses.replace(outcome, entries=entries)

    def _blocked(self, view: View, message: str) -> Outcome:
        self._notices.append(Notice("FailoverBlocked", message))
        is_placed = bool(view.picture.decisions)
        outcome = self._outcome(retry_seconds=BLOCKED_SECONDS)
        return dataclasses.replace(outcome, entries=plan.entries(view.picture) if is_placed else None)

    def _outcome(self, *, retry_seconds: float | None = None, is_complete: bool = False) -> Outcome:
        return Outcome(
            notices=tuple(self._notices),
            retry_seconds=retry_seconds,
            is_complete=is_complete,
            has_freed=self._has_freed,
        )

    # -- observing ----------------------------------------------------------------------------------------------------

    async def _look(self, *, is_placed: bool = True) -> View:
        targets = self._surroundings.targets
        is_well = all(target.may_take or target.closed for target in targets)
        is_moving = self._is_acting or not is_placed or not self._memory.is_known
        age_seconds = TRANSITION_SECONDS if is_moving else REST_SECONDS if is_well else WATCHFUL_SECONDS
        view = await self._rack.look(
            self._wanted,
            self._surroundings,
            self._memory,
            age_seconds=age_seconds,
            refused_uids=self._refused_uids,
            is_placed=is_placed,
        )
        if is_placed or view.picture.match.floating_ips:
            self._memory.is_known = True
        return view

    # -- acting -------------------------------------------------------------------------------------------------------

    async def _try(self, view: View, step: plan.Step) -> Outcome | None:
        """Carry out a step; gives the outcome when the pass ends with it."""
        self._is_acting = True
        try:
            await self._apply(step)
        except oxide.OxideError as error:
            if isinstance(error, oxide.Unauthorized | oxide.Forbidden | oxide.NotVisible):
                raise
            self._log.info("The rack did not do it", step=type(step).__name__, error=str(error))
            return await self._judge(view, step, error)
        self._memory.failures = 0
        return None

    async def _apply(self, step: plan.Step) -> None:
        """Make the one call of a step."""
        client, rack = self._rack.project.client, self._rack
        match step:
            case plan.Create():
                await self._create(step)
            case plan.Stamp(floating_ip, description) | plan.LetGo(floating_ip, description):
                body = models.FloatingIpUpdate(description=description)
                rack.made(await client.floating_ip_update(floating_ip.id, body))
                self._has_freed = True
                if isinstance(step, plan.LetGo):
                    self._say("FloatingIPKept", f"Kept floating IP {floating_ip.name} ({floating_ip.ip})")
            case plan.Attach(floating_ip, node):
                body_of_attach = models.FloatingIpAttach(parent=node.instance_id)
                await client.floating_ip_attach(floating_ip.id, body_of_attach)
                await rack.view(floating_ip.id)
                rack.arrived(floating_ip.id, node.instance_id)
                self._say("FloatingIPAttached", f"Attached {floating_ip.ip} to {node.name}")
            case plan.Detach(floating_ip, to):
                # The answer still shows the instance (semantics 6), so it is not believed.
                await client.floating_ip_detach(floating_ip.id)
                await rack.view(floating_ip.id)
                self._has_freed = True
                whereto = f" to move it to {to.name}" if to is not None else ""
                self._say("FloatingIPDetached", f"Detached {floating_ip.ip} from {floating_ip.instance_id}{whereto}")
            case plan.Delete(floating_ip):
                await client.floating_ip_delete(floating_ip.id)
                rack.deleted(floating_ip.id)
                self._memory.last_act = rack.now()
                self._has_freed = True
                self._say("FloatingIPDeleted", f"Deleted floating IP {floating_ip.name} ({floating_ip.ip})")
            case _:
                raise AssertionError(f"{step} is not a step on the rack")

    async def _create(self, step: plan.Create) -> None:
        place, rack = step.place, self._rack
        # One after a lost answer is the same again, so nothing is doubled.
        name = next(name for name in names_for(self._wanted.owner, rack.cluster_id) if not rack.has_name(name))
        body = models.FloatingIpCreate(name=name, description=step.description, address_allocator=_allocator(step))
        try:
            made = await rack.project.client.floating_ip_create(body, project=rack.project.id)
        except oxide.OxideError as error:
            # It may have been made all the same, and only a later list can tell.
            self._memory.last_act = rack.now()
            if isinstance(error, _UNANSWERED):
                self._memory.unanswered_at = self._clock.monotonic()
            raise
        rack.made(made)
        self._memory.refused.pop(place.wish, None)
        self._say("FloatingIPCreated", f"Created floating IP {made.name} ({made.ip})")

    async def _judge(self, view: View, step: plan.Step, error: oxide.OxideError) -> Outcome | None:
        """What an error means for the pass: None to go on, else how it ends."""
        match step:
            case plan.Create():
                return self._judge_create(view, step, error)
            case plan.Attach():
                return await self._judge_attach(step, error)
            case plan.Detach():
                return await self._judge_detach(view, step, error)
            case plan.Delete() if isinstance(error, oxide.ObjectNotFound):
                self._rack.deleted(step.floating_ip.id)
                self._memory.last_act = self._rack.now()
                return None
            case _:
                self._memory.last_act = self._rack.now()
                return self._quick(view, error)

    def _judge_create(self, view: View, step: plan.Create, error: oxide.OxideError) -> Outcome | None:
        if isinstance(error, oxide.ObjectAlreadyExists):
            # Ours, most likely, of an attempt whose answer was lost: the next list shows it.
            return None
        if not isinstance(error, _REFUSED):
            return self._quick(view, error)
        refusal = Refusal("AddressNotAvailable", f"the rack makes no floating IP as it is wanted: {error.message}")
        self._memory.refused[step.place.wish] = (refusal, self._clock.monotonic() + SLOW_SECONDS)
        return None

    async def _judge_attach(self, step: plan.Attach, error: oxide.OxideError) -> Outcome | None:
        rack, floating_ip, instance_id = self._rack, step.floating_ip, step.to.instance_id
        now = await rack.view(floating_ip.id)
        if now is None or now.instance_id is not None:
            # It is gone, or attached, here after all or elsewhere: all is to be thought over.
            return None
        if isinstance(error, _REFUSED):
            message = f"floating IP {floating_ip.ip} cannot be attached to {step.to.name}: {error.message}"
            self._notices.append(Notice("AttachRefused", message))
        elif rack.failed(floating_ip.id, instance_id) < ATTEMPTS_MAX:
            return self._quick(await self._look(), error)
        rack.bar(floating_ip.id, instance_id, BARRED_SECONDS)
        return None

    async def _judge_detach(self, view: View, step: plan.Detach, error: oxide.OxideError) -> Outcome | None:
        now = await self._rack.view(step.floating_ip.id)
        if now is None or now.instance_id != step.floating_ip.instance_id:
            return None
        if isinstance(error, _REFUSED):
            message = f"floating IP {step.floating_ip.ip} cannot be taken off instance {now.instance_id}"
            return self._blocked(view, f"{message}: {error.message}")
        return self._quick(view, error)

    def _say(self, reason: str, message: str) -> None:
        self._log.info("Acting on the rack", reason=reason, act=message)
        self._notices.append(Notice(reason, message, is_warning=False))


def _allocator(step: plan.Create) -> models.AddressAllocator:
    wish, pool = step.place.wish, step.place.pool
    if wish.reference:
        return models.ExplicitAddress.model_validate({"ip": wish.reference})
    if pool is not None:
        return models.AnyAddress(pool_selector=models.ExplicitPool(pool=pool.id))
    version = models.IpVersion.V6 if wish.family == "IPv6" else models.IpVersion.V4
    return models.AnyAddress(pool_selector=models.DefaultPool(ip_version=version))
