"""One request as an operation sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from capox.rack import access, errors, paging
from capox.rack.faults import Faults
from capox.rack.json import JSON
from capox.rack.state import Rack
from capox.rack.table import Record, Table

R = TypeVar("R", bound=Record)


@dataclasses.dataclass(kw_only=True)
class Call:
    """A request that has been decoded and authenticated.

    Attributes:
        rack: the rack's state.
        operation: the operationId.
        actor: on whose behalf it is made.
        path: the path's variables; ids are in lower case.
        query: the query's parameters, with a page token's filters in them.
        body: the JSON body, checked and with defaults filled in; None when the operation has none.
        at: where a list's page begins.
        faults: the faults that are to be played.
    """

    rack: Rack
    operation: str
    actor: access.Actor
    path: dict[str, str]
    query: dict[str, Any]
    body: JSON
    at: paging.Position
    faults: Faults

    def page(
        self,
        table: Table[R],
        parent: str,
        view: Callable[[R], JSON],
        is_shown: Callable[[R], bool] | None = None,
    ) -> JSON:
        """A page of a parent's records in a table, or of those among them that are shown."""
        at = self.at
        items: Iterator[R] = table.walk(parent, at.order, at.after)
        if is_shown is not None:
            items = filter(is_shown, items)
        return paging.page(items, at, view, _key(at))

    def page_of(self, items: Iterable[R], view: Callable[[R], JSON]) -> JSON:
        """A page of records that come in no order."""
        return paging.page(paging.ordered(items, self.at, _name_of, _id_of), self.at, view, _key(self.at))

    def update_identity(self, table: Table[R], record: R) -> R:
        """Change name and description as far as the body gives them, and return the record.

        Raises:
            Refusal: the name is taken.
        """
        name, description = self.body["name"], self.body["description"]
        if description is not None:
            check_description(description)
        if name is not None:
            table.rename(record, name)
        if description is not None:
            record.description = description
        record.time_modified = self.rack.now()
        return record

    async def elapse(self, seconds: float) -> None:
        """Let time pass within the request, as a saga's work does, and do what has become due meanwhile."""
        await self.rack.clock.sleep(seconds)
        self.rack.settle()


Handler = Callable[[Call], JSON | Awaitable[JSON]]
HANDLERS: dict[str, Handler] = {}

# Operations that answer without credentials. Their handlers do not look at the actor.
OPEN_OPERATIONS = frozenset({"ping"})


def operation(handler: Handler) -> Handler:
    """Register a function as the operation whose operationId it bears."""
    HANDLERS[handler.__name__] = handler
    return handler


def check_description(description: str) -> None:
    """The database's column ends at 512 characters, and the API does not check before (semantics 2.1).

    Raises:
        Refusal: 500, as a real rack answers.
    """
    if len(description) > 512:
        raise errors.internal_error()


def _key(at: paging.Position) -> Callable[[Record], str]:
    return _id_of if at.order == paging.ID_ASCENDING else _name_of


def _id_of(record: Record) -> str:
    return record.id


def _name_of(record: Record) -> str:
    return record.name
