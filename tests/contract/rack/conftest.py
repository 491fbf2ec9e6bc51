"""A small rack for each test, asked over HTTP within the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.rack import RackUnderTest


@pytest.fixture
def rack() -> Iterator[RackUnderTest]:
    """A rack whose time stands still until it is told to pass; in the end it must have kept to its document."""
    under_test = RackUnderTest()
    yield under_test
    assert under_test.app.violations == []


@pytest.fixture
async def client(rack: RackUnderTest) -> AsyncIterator[RackUnderTest]:
    """The same rack with its HTTP client open."""
    async with rack:
        yield rack
