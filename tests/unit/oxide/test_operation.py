"""Operations as data: where a call goes, and lists over all their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capox.oxide import errors
from capox.oxide.models import FloatingIp, ResultsPage
from capox.oxide.operation import PAGE_TOKEN_LIMIT_CHARACTERS, PAGES_LIMIT, Caller, Operation, Paged, Parameter
from capox.oxide.operations.external_ips import FLOATING_IP_LIST, INSTANCE_EXTERNAL_IP_LIST
from capox.oxide.operations.instances import INSTANCE_VIEW
from capox.oxide.operations.vpcs import VPC_SUBNET_VIEW
from tests.sim.loop import simulated
from tests.unit.oxide import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from capox.oxide.models import WriteModel


def test_a_call_goes_to_its_place() -> None:
    """Path parameters go into the path, the others into the query, and what is None is left out."""
    assert INSTANCE_VIEW.target({"instance": "machine-1", "project": "demo"}) == (
        "/v1/instances/machine-1",
        {"project": "demo"},
    )
    an_id = UUID(examples.SUBNET_ID)
    assert VPC_SUBNET_VIEW.target({"subnet": an_id, "vpc": None, "project": None}) == (f"/v1/vpc-subnets/{an_id}", {})


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "a/b", "../projects/demo", "%2e%2e", "a?project=x", "a#b", "a b", "a\n", "ä", "-a", "a" * 64],
)
def test_what_would_lead_elsewhere_is_not_sent(value: str) -> None:
    """A path parameter that is neither a name nor an id could change which operation is called, and is refused."""
    with pytest.raises(ValueError, match="neither a name nor an id"):
        INSTANCE_VIEW.target({"instance": value})


@given(st.text())
def test_no_text_leaves_its_segment(value: str) -> None:
    """Whatever is given as a name, the path has the segments that it should have."""
    try:
        path, _ = INSTANCE_VIEW.target({"instance": value})
    except ValueError:
        return

    assert path == f"/v1/instances/{value}"
    assert path.count("/") == 3


def test_an_unknown_parameter_is_refused() -> None:
    """The rack ignores unknown query parameters, so a wrong one would silently do nothing."""
    with pytest.raises(ValueError, match="instance_view has no parameter vpc"):
        INSTANCE_VIEW.target({"instance": "machine-1", "vpc": "default"})


class _Pages(Caller):
    """Gives pages of floating IPs as a function of the parameters, and remembers what was asked for."""

    def __init__(self, page_of: Callable[[dict[str, Parameter]], tuple[list[dict[str, Any]], str | None]]) -> None:
        self._page_of = page_of
        self.asked: list[dict[str, Parameter]] = []

    async def call(self, operation: Operation[Any], *, body: WriteModel | None = None, **parameters: Parameter) -> Any:
        """Answer a page."""
        assert body is None
        operation.target(parameters)
        self.asked.append(parameters)
        assert len(self.asked) <= PAGES_LIMIT, "the list does not end"
        items, token = self._page_of(parameters)
        assert operation.answer is not None
        return operation.answer.validate_python({"items": items, "next_page": token})


def _floating_ips(pages: Caller, **options: Any) -> Paged[FloatingIp]:
    return Paged(pages, FLOATING_IP_LIST, project="demo", **options)


def _by_number(numbers: Iterable[int]) -> Callable[[dict[str, Parameter]], tuple[list[dict[str, Any]], str | None]]:
    """Serve numbered floating IPs as the rack does: the token is the last id, and only an empty page has none."""

    def page(parameters: dict[str, Parameter]) -> tuple[list[dict[str, Any]], str | None]:
        """Serve a page."""
        after = int(str(parameters.get("page_token") or 0))
        limit = int(str(parameters["limit"]))
        left = sorted(number for number in numbers if number > after)[:limit]
        return [examples.floating_ip(number) for number in left], str(left[-1]) if left else None

    return page


@simulated
async def test_the_last_page_is_the_empty_one() -> None:
    """The rack gives a token with every page that has items; the list ends at the one that has none."""
    pages = _Pages(_by_number(range(1, 8)))

    names = [each.name async for each in _floating_ips(pages, limit=3)]

    assert names == [f"floating-ip-{number}" for number in range(1, 8)]
    assert [asked.get("page_token") for asked in pages.asked] == [None, "3", "6", "7"]


@simulated
async def test_pages_are_asked_for_in_the_order_of_ids() -> None:
    """Only ids never change; later pages carry the order in their token."""
    pages = _Pages(_by_number(range(1, 3)))

    await _floating_ips(pages).all()

    assert pages.asked == [
        {"project": "demo", "limit": 1000, "sort_by": "id_ascending"},
        {"project": "demo", "limit": 1000, "page_token": "2"},
    ]


@simulated
async def test_a_token_that_is_null_or_empty_ends_the_list() -> None:
    """A rack that says that there is no more is believed."""
    for token in (None, ""):
        pages = _Pages(lambda _, token=token: ([examples.floating_ip(1)], token))  # type: ignore[misc]

        assert len(await _floating_ips(pages).all()) == 1
        assert len(pages.asked) == 1


@simulated
async def test_an_empty_list_is_one_empty_page() -> None:
    """Nothing there is an answer, not an error."""
    assert await _floating_ips(_Pages(_by_number([]))).all() == []


@simulated
async def test_a_token_that_comes_back_is_an_error_not_a_short_list() -> None:
    """A server that goes round in circles is given up, and what it has shown is not called complete."""
    for circle in (["a"], ["a", "b", "c"]):

        def page(parameters: dict[str, Parameter], circle: list[str] = circle) -> tuple[list[dict[str, Any]], str]:
            """Serve a page."""
            token = str(parameters.get("page_token") or circle[-1])
            return [examples.floating_ip(1)], circle[(circle.index(token) + 1) % len(circle)]

        pages = _Pages(page)

        with pytest.raises(errors.ResponseError, match="came back a second time"):
            await _floating_ips(pages).all()
        assert len(pages.asked) == len(circle) + 1


@simulated
async def test_a_list_without_end_is_given_up() -> None:
    """New tokens for ever keep nobody for ever."""
    numbers = iter(range(10**9))

    with pytest.raises(errors.ResponseError, match=f"goes on after {PAGES_LIMIT} pages"):
        await _floating_ips(_Pages(lambda _: ([examples.floating_ip(1)], str(next(numbers))))).all()


@simulated
async def test_a_token_that_fits_into_no_address_is_an_error() -> None:
    """It is said of the answer that brought it, not of the request that could not be made."""
    token = "t" * (PAGE_TOKEN_LIMIT_CHARACTERS + 1)

    with pytest.raises(errors.ResponseError, match="page token is longer"):
        await _floating_ips(_Pages(lambda _: ([examples.floating_ip(1)], token))).all()


@simulated
async def test_a_page_that_fails_fails_the_list() -> None:
    """Half a list is never taken for a whole one; asked again, it goes on where it stopped."""
    serve = _by_number(range(1, 7))
    failures = [errors.ServiceUnavailable("no", operation="floating_ip_list", status=503)]

    def page(parameters: dict[str, Parameter]) -> tuple[list[dict[str, Any]], str | None]:
        """Serve a page."""
        if "page_token" in parameters and failures:
            raise failures.pop()
        return serve(parameters)

    listed = _floating_ips(_Pages(page), limit=3)
    with pytest.raises(errors.ServiceUnavailable):
        await listed.all()

    assert [each.name for each in await listed.all()] == ["floating-ip-4", "floating-ip-5", "floating-ip-6"]


@simulated
async def test_a_list_that_has_no_pages_is_asked_for_once() -> None:
    """Some lists come whole and take no limit; a token there means nothing."""
    pages = _Pages(lambda _: ([{"kind": "floating", **examples.floating_ip(1)}], "a-token"))

    listed = await Paged(pages, INSTANCE_EXTERNAL_IP_LIST, instance="machine-1", project="demo").all()

    assert len(listed) == 1
    assert pages.asked == [{"instance": "machine-1", "project": "demo"}]


_Change = st.tuples(st.sampled_from(["create", "delete", "rename"]), st.integers(1, 30))


@given(
    before=st.sets(st.integers(1, 30)),
    limit=st.integers(1, 5),
    changes=st.lists(st.lists(_Change, max_size=4), max_size=12),
)
def test_what_exists_all_the_time_is_listed_exactly_once(
    before: set[int], limit: int, changes: list[list[tuple[str, int]]]
) -> None:
    """Whatever is made, deleted or renamed between the pages, what stays is neither missed nor doubled."""

    @simulated
    async def read() -> None:
        """Read the list while it changes."""
        existing, stayed, ever = set(before), set(before), set(before)
        names = {number: f"floating-ip-{number}" for number in range(1, 31)}
        between = iter(changes)

        def page(parameters: dict[str, Parameter]) -> tuple[list[dict[str, Any]], str | None]:
            """Serve a page."""
            items, token = _by_number(existing)(parameters)
            for act, number in next(between, []):
                if act == "create":
                    existing.add(number)
                    ever.add(number)
                elif act == "delete":
                    existing.discard(number)
                    stayed.discard(number)
                else:
                    names[number] = f"renamed-{number}"
            return [{**item, "name": names[int(item["id"][-12:], 16)]} for item in items], token

        listed = [int(each.id.hex[-12:], 16) for each in await _floating_ips(_Pages(page), limit=limit).all()]

        assert len(set(listed)) == len(listed)
        assert stayed <= set(listed) <= ever

    read()


def test_a_page_is_immutable() -> None:
    """Pages may be shared."""
    page = ResultsPage[FloatingIp].model_validate({"items": [], "next_page": None})

    with pytest.raises(ValueError, match="frozen"):
        page.items = ()
