"""The shared observation of a project: nothing is gone before it is proven. On virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from capox.oxide import ProjectInventory, errors
from capox.oxide.operations import Operations
from tests.sim.loop import seconds, simulated
from tests.unit.oxide import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from capox.oxide.models import WriteModel
    from capox.oxide.operation import Operation, Parameter

FIRST = UUID(examples.instance_id(1))


class World(Operations):
    """A project in memory, behind the seam at which operations are carried out.

    Attributes:
        instances: By id.
        visible: Whether the credentials may see the project.
        hidden: Ids whose views answer 404 although the list has them.
        fails: Errors by operation, once each.
        calls: How often each operation was called.
        on_page: Called after each page of a list.
    """

    def __init__(self, *numbers: int) -> None:
        self.instances = {examples.instance_id(number): examples.instance(number) for number in numbers}
        self.floating_ips = {examples.floating_ip(1)["id"]: examples.floating_ip(1)}
        self.disks = {examples.disk(1)["id"]: examples.disk(1)}
        self.interfaces = {examples.network_interface(1)["id"]: examples.network_interface(1)}
        self.visible = True
        self.hidden: set[str] = set()
        self.fails: dict[str, errors.OxideError] = {}
        self.calls: Counter[str] = Counter()
        self.on_page: Callable[[], object] = lambda: None

    async def call(self, operation: Operation[Any], *, body: WriteModel | None = None, **parameters: Parameter) -> Any:
        """Carry out an operation."""
        assert body is None
        name = operation.operation_id
        self.calls[name] += 1
        operation.target(parameters)
        await asyncio.sleep(0.1)
        if name in self.fails:
            raise self.fails.pop(name)
        if not self.visible:
            raise self._not_found(name, "project")
        assert operation.answer is not None
        return operation.answer.validate_python(self._answer(name, parameters))

    def _answer(self, name: str, parameters: dict[str, Parameter]) -> Any:
        lists = {
            "instance_list": self.instances,
            "floating_ip_list": self.floating_ips,
            "disk_list": self.disks,
            "vpc_subnet_list_network_interfaces": self.interfaces,
        }
        if name in lists:
            after = str(parameters.get("page_token") or "")
            left = [each for key, each in sorted(lists[name].items()) if key > after][:2]
            self.on_page()
            return {"items": left, "next_page": left[-1]["id"] if left else None}
        if name == "project_view":
            return examples.project()
        kind = name.removesuffix("_view")
        held = {"instance": self.instances, "floating_ip": self.floating_ips, "disk": self.disks}[kind]
        wanted = str(parameters[kind])
        if wanted in held and wanted not in self.hidden:
            return held[wanted]
        raise self._not_found(name, kind)

    def _not_found(self, operation: str, kind: str) -> errors.ObjectNotFound:
        return errors.ObjectNotFound(
            f"not found: {kind}", operation=operation, status=404, error_code="ObjectNotFound", request_id="r"
        )


@simulated
async def test_the_four_lists() -> None:
    """Instances, floating IPs, disks and a subnet's interfaces are read whole, each on its own."""
    world = World(1, 2, 3)
    inventory = ProjectInventory(world, "demo")
    subnet = UUID(examples.SUBNET_ID)

    assert len(await inventory.instances.recent()) == 3
    assert world.calls == {"instance_list": 3}
    assert (await inventory.floating_ips.recent()).by_name("floating-ip-1") is not None
    assert (await inventory.disks.recent()).by_name("disk-1") is not None
    assert len((await inventory.network_interfaces(subnet).recent()).of_instance(FIRST)) == 1
    assert inventory.network_interfaces(subnet) is inventory.network_interfaces(subnet)


@simulated
async def test_an_instance_that_is_there_is_not_absent() -> None:
    """One view settles it."""
    world = World(1)

    assert not await ProjectInventory(world, "demo").is_instance_absent(FIRST)
    assert world.calls == {"instance_view": 1}


@simulated
async def test_absence_is_proven_by_view_list_and_project() -> None:
    """The id is not found, a complete later list does not have it, and the project is visible."""
    world = World(2, 3, 4)
    inventory = ProjectInventory(world, "demo")

    assert await inventory.is_instance_absent(FIRST)
    assert world.calls == {"instance_view": 1, "instance_list": 3, "project_view": 1}


@simulated
async def test_floating_ips_and_disks_are_proven_alike() -> None:
    """Each by its own view and list."""
    world = World()
    inventory = ProjectInventory(world, "demo")
    floating_ip, disk = UUID(examples.floating_ip(1)["id"]), UUID(examples.disk(1)["id"])

    assert not await inventory.is_floating_ip_absent(floating_ip)
    assert not await inventory.is_disk_absent(disk)
    world.floating_ips.clear()
    world.disks.clear()
    assert await inventory.is_floating_ip_absent(floating_ip)
    assert await inventory.is_disk_absent(disk)


@simulated
async def test_a_list_from_before_the_view_proves_nothing() -> None:
    """An instance that came into view after the latest list is found by the next one, which the proof waits for."""
    world = World()
    inventory = ProjectInventory(world, "demo")
    assert len(await inventory.instances.recent()) == 0
    world.instances[str(FIRST)] = examples.instance(1)
    world.hidden.add(str(FIRST))

    assert not await inventory.is_instance_absent(FIRST)


@simulated
async def test_a_hidden_instance_is_not_absent() -> None:
    """A 404 may mean that one may not see it: the list still has it, so it exists."""
    world = World(1)
    world.hidden.add(str(FIRST))

    assert not await ProjectInventory(world, "demo").is_instance_absent(FIRST)


@simulated
async def test_nothing_is_absent_from_a_project_that_cannot_be_seen() -> None:
    """Credentials that lost their rights answer 404 to everything; that is an error of its own, not an absence."""
    world = World(1)
    world.visible = False
    inventory = ProjectInventory(world, "demo")

    for ask in (
        lambda: inventory.is_instance_absent(FIRST),
        inventory.instances.recent,
        lambda: inventory.floating_ips.fresh_since(inventory.now()),
        inventory.network_interfaces(UUID(examples.SUBNET_ID)).recent,
    ):
        with pytest.raises(errors.NotVisible) as caught:
            await ask()
        assert not isinstance(caught.value, errors.ObjectNotFound)
        assert caught.value.request_id == "r"


@simulated
async def test_rights_that_are_lost_during_the_proof_end_it() -> None:
    """The project is looked at last, so that nothing before it can have been answered blindly."""
    world = World()
    world.fails["project_view"] = errors.ObjectNotFound("not found: project", operation="project_view", status=404)

    with pytest.raises(errors.NotVisible):
        await ProjectInventory(world, "demo").is_instance_absent(FIRST)


@pytest.mark.parametrize("operation", ["instance_view", "instance_list", "project_view"])
@pytest.mark.parametrize(
    "error",
    [
        errors.APIError("Not Found", operation="any", status=404),
        errors.ResponseError("not JSON", operation="any", status=404),
        errors.Unauthorized("no", operation="any", status=401),
        errors.ServiceUnavailable("no", operation="any", status=503),
        errors.TransportError("cut", operation="any", outcome_unknown=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_could_not_be_read_is_not_gone(operation: str, error: errors.OxideError) -> None:
    """Every failure of every step is a failure of the proof: a 404 of a wrong address most of all."""

    @simulated
    async def prove() -> None:
        """Try to prove an absence."""
        world = World()
        world.fails[operation] = error
        with pytest.raises(type(error)):
            await ProjectInventory(world, "demo").is_instance_absent(FIRST)

    prove()


@simulated
async def test_changes_between_pages_lose_nothing_that_stays() -> None:
    """While the pages are read, ones before and after are made and deleted; what stays is in the snapshot."""
    world = World(*range(10, 20))
    acts: list[Callable[[], object]] = [
        lambda: world.instances.pop(examples.instance_id(10)),
        lambda: world.instances.update({examples.instance_id(5): examples.instance(5)}),
        lambda: world.instances.pop(examples.instance_id(19)),
        lambda: world.instances.update({examples.instance_id(18): examples.instance(18, name="renamed")}),
    ]
    world.on_page = lambda: acts.pop(0)() if acts else None

    snapshot = await ProjectInventory(world, "demo").instances.recent()

    assert {examples.instance_id(number) for number in range(11, 19)} <= {str(each.id) for each in snapshot}


@simulated
async def test_many_proofs_share_their_lists() -> None:
    """A hundred deletions that end together read the list once or twice, not a hundred times."""
    world = World()
    inventory = ProjectInventory(world, "demo")

    proofs = [inventory.is_instance_absent(UUID(examples.instance_id(number))) for number in range(100)]
    assert all(await asyncio.gather(*proofs))

    assert world.calls["instance_list"] <= 2
    assert seconds() < 3


@simulated
async def test_closing_ends_all_reading() -> None:
    """No list is left running."""
    inventory = ProjectInventory(World(1, 2, 3, 4, 5), "demo")
    waiting = [
        asyncio.create_task(inventory.instances.recent()),
        asyncio.create_task(inventory.network_interfaces(UUID(examples.SUBNET_ID)).recent()),
    ]
    await asyncio.sleep(0.15)

    await inventory.aclose()
    await asyncio.wait(waiting)

    assert all(task.cancelled() for task in waiting)
    assert asyncio.all_tasks() == {asyncio.current_task()}
