"""One operation of the rack's API as data, the seam through which it is called, and lists over all their pages.

A row of the tables in `capox.oxide.operations` holds all that is needed for the request and for judging the answer;
the contract tests hold every row against the OpenAPI document.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from capox.oxide.errors import ResponseError
from capox.oxide.models.wire import NameOrId, ResultsPage

if TYPE_CHECKING:
    from capox.oxide.models.wire import WriteModel

AnswerT = TypeVar("AnswerT")
ItemT = TypeVar("ItemT")

Verb = Literal["GET", "POST", "PUT", "DELETE"]

Parameter = NameOrId | int | None
"""A path or query parameter; None leaves a query parameter out."""

PAGE_LIMIT: Final = 1000
"""Items asked for in one page. The rack's own default is 100, its maximum 10,000."""

PAGE_TOKEN_LIMIT_CHARACTERS: Final = 4096
"""The rack's tokens have at most 512; a far longer one would not fit into an address."""

PAGES_LIMIT: Final = 10_000
"""Pages of one list after which it is given up: a server that never ends must not keep its client for ever."""

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
# Wide enough for every name and id. It keeps out what would change the path: slashes, dots, the empty text.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[AnswerT]):
    """One operation.

    Attributes:
        operation_id: Its name in the specification, and that of the client's method.
        verb: The HTTP method.
        path: The path, with its parameters in braces.
        query: The names of the query parameters in use.
        status: The one documented status of success.
        answer: What reads the answer; None when success has no body.
        body: The model of the request's body; None when there is none.
    """

    operation_id: str
    verb: Verb
    path: str
    query: frozenset[str]
    status: int
    answer: TypeAdapter[AnswerT] | None
    body: type[WriteModel] | None = None

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that it may be repeated."""
        return self.verb == "GET"

    def target(self, parameters: dict[str, Parameter]) -> tuple[str, dict[str, str]]:
        """Place the parameters of a call.

        Args:
            parameters: Each parameter that the path names, and any of the query's.

        Returns:
            The path and the query.

        Raises:
            ValueError: A path parameter is neither a name nor an id. Such a text could lead to another path, so it is
                never sent.
        """
        rest = dict(parameters)
        path = self.path
        for name in _PARAMETER.findall(self.path):
            value = str(rest.pop(name))
            if not _SEGMENT.fullmatch(value):
                raise ValueError(
                    f"{self.operation_id}: {name} {value!r} is neither a name nor an id; "
                    "use at most 63 letters, digits and hyphens"
                )
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        unknown = rest.keys() - self.query
        if unknown:
            raise ValueError(f"{self.operation_id} has no parameter {', '.join(sorted(unknown))}")
        return path, {name: str(value) for name, value in rest.items() if value is not None}


def _reader(answer: type[AnswerT] | TypeAdapter[AnswerT]) -> TypeAdapter[AnswerT]:
    return answer if isinstance(answer, TypeAdapter) else TypeAdapter(answer)


def view(operation_id: str, path: str, answer: type[AnswerT] | TypeAdapter[AnswerT], *query: str) -> Operation[AnswerT]:
    """Describe a read of one thing."""
    return Operation(
        operation_id=operation_id,
        verb="GET",
        path=path,
        query=frozenset(query),
        status=200,
        answer=_reader(answer),
    )


def pages(operation_id: str, path: str, page: type[ResultsPage[ItemT]], *query: str) -> Operation[ResultsPage[ItemT]]:
    """Describe a list that comes in pages."""
    return view(operation_id, path, page, "limit", "page_token", "sort_by", *query)


def write(
    operation_id: str,
    verb: Verb,
    path: str,
    answer: type[AnswerT] | TypeAdapter[AnswerT],
    *query: str,
    status: int,
    body: type[WriteModel] | None = None,
) -> Operation[AnswerT]:
    """Describe a change whose answer shows the changed thing."""
    return Operation(
        operation_id=operation_id,
        verb=verb,
        path=path,
        query=frozenset(query),
        status=status,
        answer=_reader(answer),
        body=body,
    )


def delete(operation_id: str, path: str, *query: str) -> Operation[None]:
    """Describe a deletion; its answer is empty."""
    return Operation(
        operation_id=operation_id, verb="DELETE", path=path, query=frozenset(query), status=204, answer=None
    )


class Caller(ABC):
    """What can carry out an operation."""

    @abstractmethod
    async def call(
        self, operation: Operation[AnswerT], *, body: WriteModel | None = None, **parameters: Parameter
    ) -> AnswerT:
        """Carry out one operation; see `capox.oxide.client.OxideClient.call`."""


class Paged(Generic[ItemT]):
    """A list over all its pages, fetched one by one while it is iterated. It can be iterated once.

    It is read in the order of ids, which nothing can change: what exists during the whole reading is in it exactly
    once, whatever is made, deleted or renamed meanwhile. What was made after the reading began may be missing, and
    what was deleted since then may still be there.

    When the iteration ends without an error, the list is complete: a page that fails, a token that comes back a
    second time and a list without end raise instead.
    """

    def __init__(
        self,
        caller: Caller,
        operation: Operation[ResultsPage[ItemT]],
        *,
        limit: int = PAGE_LIMIT,
        **parameters: Parameter,
    ) -> None:
        """Prepare a list; nothing is asked yet.

        Args:
            caller: What asks for the pages.
            operation: The list's operation.
            limit: Items in a page, 1 to 10,000.
            **parameters: The parameters of every page.
        """
        self._caller = caller
        self._operation = operation
        self._parameters: dict[str, Parameter] = parameters
        self._is_paged = "page_token" in operation.query
        self._page_number = 0
        self._tokens: set[str] = set()
        self._items: tuple[ItemT, ...] = ()
        self._next_item = 0
        self._ended = False
        if self._is_paged:
            self._parameters = {**parameters, "limit": limit, "sort_by": "id_ascending"}

    def __aiter__(self) -> Paged[ItemT]:
        return self

    async def __anext__(self) -> ItemT:
        while self._next_item >= len(self._items):
            if self._ended:
                raise StopAsyncIteration
            await self._fetch()
        item = self._items[self._next_item]
        self._next_item += 1
        return item

    async def all(self) -> list[ItemT]:
        """Read the whole list."""
        return [item async for item in self]

    async def _fetch(self) -> None:
        page = await self._caller.call(self._operation, body=None, **self._parameters)
        self._items, self._next_item = page.items, 0
        self._page_number += 1
        token = page.next_page if self._is_paged else None
        # The last page with items has a token like every other; only the empty page after it has none
        # (semantics 1.5).
        if not page.items or not token:
            self._ended = True
            return
        if len(token) > PAGE_TOKEN_LIMIT_CHARACTERS:
            raise self._endless(f"a page token is longer than {PAGE_TOKEN_LIMIT_CHARACTERS} characters")
        if token in self._tokens:
            raise self._endless("a page token came back a second time, so the list cannot be read to its end")
        if self._page_number >= PAGES_LIMIT:
            raise self._endless(f"the list goes on after {PAGES_LIMIT} pages")
        self._tokens.add(token)
        # The order is in the token.
        self._parameters = {name: value for name, value in self._parameters.items() if name != "sort_by"}
        self._parameters["page_token"] = token

    def _endless(self, message: str) -> ResponseError:
        return ResponseError(message, operation=self._operation.operation_id, status=self._operation.status)
