"""Tables of records: found by id, found by name within a parent, and walked in order from any place.

Every look-up, insertion and page start costs O(log n), so a rack with ten thousand instances answers as quickly as one
with a thousand.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

from capox.rack import errors


class Record(Protocol):
    """What every record in a table has.

    Attributes:
        id: a UUID in lower case.
        name: unique among the records of the same parent.
        description: free text.
        time_modified: when the record was last changed.
        parent: the id of what the record belongs to (a project, a VPC, a user); names are unique within it.
    """

    id: str
    name: str
    description: str
    time_modified: datetime.datetime

    @property
    def parent(self) -> str:
        """The id of what the record belongs to."""
        ...


R = TypeVar("R", bound=Record)

_BEHIND_EVERY_ID = "g"  # ids are hexadecimal digits and hyphens


class Table(Generic[R]):
    """The records of one resource.

    Args:
        resource: the resource's name in error messages, kebab case, such as `floating-ip`.
    """

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self._by_id: dict[str, R] = {}
        self._names: dict[str, SortedDict[str, R]] = {}
        self._ids: dict[str, SortedDict[str, R]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._by_id.values()))

    def insert(self, record: R) -> R:
        """Add a record and return it.

        Raises:
            Refusal: its name is taken (400 ObjectAlreadyExists).
        """
        if record.parent not in self._ids:
            self._names[record.parent], self._ids[record.parent] = SortedDict(), SortedDict()
        names = self._names[record.parent]
        if record.name in names:
            raise errors.already_exists(self.resource, record.name)
        names[record.name] = record
        self._ids[record.parent][record.id] = record
        self._by_id[record.id] = record
        return record

    def delete(self, record: R) -> None:
        """Take a record out; its name is free again at once."""
        del self._by_id[record.id]
        for index, key in ((self._names, record.name), (self._ids, record.id)):
            del index[record.parent][key]
            if not index[record.parent]:
                del index[record.parent]

    def rename(self, record: R, name: str) -> None:
        """Give a record another name.

        Raises:
            Refusal: the name is taken by another record (400 ObjectAlreadyExists).
        """
        names = self._names[record.parent]
        if names.get(name, record) is not record:
            raise errors.already_exists(self.resource, name)
        del names[record.name]
        record.name = name
        names[name] = record

    def by_id(self, identity: str) -> R | None:
        """The record with this id."""
        return self._by_id.get(identity)

    def by_name(self, parent: str, name: str) -> R | None:
        """The record with this name within its parent."""
        names = self._names.get(parent)
        return None if names is None else names.get(name)

    def of(self, parent: str) -> list[R]:
        """All records of a parent, by name."""
        names = self._names.get(parent)
        return [] if names is None else list(names.values())

    def count(self, parent: str) -> int:
        """How many records a parent has."""
        return len(self._ids.get(parent, ()))

    def walk(self, parent: str, order: str, after: str | None) -> Iterator[R]:
        """The records of a parent in an order, from behind a key on.

        Args:
            parent: whose records.
            order: `name_ascending`, `name_descending` or `id_ascending`.
            after: the last name or id that was seen; absent, from the beginning.
        """
        index = (self._ids if order == "id_ascending" else self._names).get(parent)
        if index is None:
            return
        reverse = order == "name_descending"
        low, high = (None, after) if reverse else (after, None)
        for key in index.irange(low, high, inclusive=(False, False), reverse=reverse):
            yield index[key]


class Listing(Generic[R]):
    """Records listed under something that is not their parent, such as the NICs of a subnet.

    Names need not be unique here. A page costs O(log n) and what is on it, in every order.
    """

    def __init__(self) -> None:
        self._ids: SortedDict[str, R] = SortedDict()
        self._names: SortedDict[tuple[str, str], R] = SortedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._ids.values()))

    def insert(self, record: R) -> None:
        """Add a record."""
        self._ids[record.id] = record
        self._names[record.name, record.id] = record

    def delete(self, record: R) -> None:
        """Take a record out."""
        del self._ids[record.id]
        del self._names[record.name, record.id]

    def walk(self, order: str, after: str | None) -> Iterator[R]:
        """The records in an order, from behind a key on.

        As on a real rack the place in an order by name is kept as a bare name, so that of records that share one those
        behind the edge of a page are passed over.

        Args:
            order: `name_ascending`, `name_descending` or `id_ascending`.
            after: the last name or id that was seen; absent, from the beginning.
        """
        if order == "id_ascending":
            for key in self._ids.irange(after, None, inclusive=(False, False)):
                yield self._ids[key]
            return
        reverse = order == "name_descending"
        low = (after, _BEHIND_EVERY_ID) if after is not None and not reverse else None
        high = (after, "") if after is not None and reverse else None
        for name_and_id in self._names.irange(low, high, inclusive=(False, False), reverse=reverse):
            yield self._names[name_and_id]
