"""What is concluded from a client's log and a rack's log: gaps that are there are seen, and their causes told apart."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from capox.kube.certificates import self_signed
from tests.e2e import endpoint_asker, endpoint_watch
from tests.e2e.endpoint_watch import Answer, Move
from tests.integration.waiting import eventually

ADDRESS = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def call(number: int, operation: str, *, second: float, takes: float = 0.1, **fields: Any) -> dict[str, Any]:
    """A line of a rack's log of calls."""
    method = "GET" if operation.endswith(("_list", "_view")) else "POST"
    time = f"2026-01-01T00:00:{second:06.3f}+00:00"
    about = {"number": number, "operation": operation, "method": method, "objects": [ADDRESS], "status": 202}
    return about | {"time": time, "seconds": takes} | fields


def answered(*begun: float, machine: str = "one") -> list[Answer]:
    """Questions that were answered well, each after a tenth of a second."""
    return [Answer(began, began + 0.1, 200, machine) for began in begun]


def every_tenth(first: float, last: float) -> Iterable[float]:
    """Moments from one to another, ten a second."""
    return (first + index / 10 for index in range(round((last - first) * 10) + 1))


MOVE = Move(began=10.0, ended=10.6, rack_seconds=0.5, between=("GET floating_ip_list",))


def test_a_move_is_a_detach_and_the_attach_that_follows() -> None:
    """What lies between the two is told, and the time of each."""
    log = [
        call(1, "floating_ip_attach", second=1),
        call(2, "floating_ip_detach", second=10, takes=0.2),
        call(3, "floating_ip_list", second=10.25, objects=["demo"]),
        call(4, "floating_ip_attach", second=10.3, takes=0.3),
    ]

    (move,) = endpoint_watch.moves_of(log, ADDRESS)

    assert move.ended - move.began == pytest.approx(0.6)
    assert move.rack_seconds == pytest.approx(0.5)
    assert move.between == ("GET floating_ip_list",)
    assert move.writes == []


def test_a_write_between_detach_and_attach_is_told() -> None:
    """Whatever it is about, and also when it was refused."""
    log = [
        call(1, "floating_ip_detach", second=10),
        call(2, "instance_create", second=11, objects=["new"]),
        call(3, "floating_ip_attach", second=12, status=400),
        call(4, "floating_ip_attach", second=13),
    ]

    (move,) = endpoint_watch.moves_of(log, ADDRESS)

    assert move.writes == ["POST instance_create", "POST floating_ip_attach"]


def test_other_addresses_and_refused_detaches_are_no_moves() -> None:
    """Nor is the first attach of all."""
    log = [
        call(1, "floating_ip_detach", second=1, status=409),
        call(2, "floating_ip_attach", second=2),
        call(3, "floating_ip_detach", second=3, objects=[OTHER]),
        call(4, "floating_ip_attach", second=4, objects=[OTHER]),
    ]

    assert endpoint_watch.moves_of(log, ADDRESS) == []


def test_what_is_not_answered_while_nothing_moves_is_seen() -> None:
    """A question without a good answer is excused by a move only when it was asked around it."""
    during, before = Answer(10.2, 13.0, 0, "-"), Answer(8.5, 8.6, 0, "-")
    unwell = Answer(30.0, 30.1, 500, "one")

    assert endpoint_watch.unexcused([during, before, unwell], [MOVE]) == [before, unwell]


def test_a_move_has_the_silence_around_it() -> None:
    """From the last good answer before to the first after; a late one in between ends nothing."""
    answers = answered(*every_tenth(9, 9.9), *every_tenth(11.9, 20))

    assert endpoint_watch.silence_of(answers, MOVE) == pytest.approx(2.0)
    assert endpoint_watch.silences(answers, longer_than=1.0) == [pytest.approx((10.0, 12.0))]


def test_an_endpoint_that_never_answers_again_is_silent_for_ever() -> None:
    """A log that ends in the dark does not pass for one without a gap."""
    assert endpoint_watch.silence_of(answered(*every_tenth(9, 10)), MOVE) == float("inf")


def test_a_silence_long_after_a_move_is_not_the_moves() -> None:
    """It is told on its own."""
    answers = answered(*every_tenth(9, 30), *every_tenth(35, 40))

    assert endpoint_watch.silence_of(answers, MOVE) < 1
    told = endpoint_watch.tell(answers, [MOVE]).splitlines()
    assert [line.partition(" ")[0] for line in told[1:]] == ["moved", "slow"]
    assert re.search(r"no answer came for 5\.00 s$", told[2])


def test_a_client_that_does_not_ask_is_seen() -> None:
    """Its log has no gap that anybody could have met, and proves nothing about that time."""
    answers = answered(1.0, 1.1, 4.1, 4.2)

    assert endpoint_watch.longest_pause(answers) == pytest.approx(3.0)
    assert endpoint_watch.longest_pause([]) == float("inf")


def test_who_answers_after_a_move_is_told_by_the_certificate() -> None:
    """Answers that were begun before the attach was over count for nobody."""
    answers = answered(10.55, machine="one") + answered(10.7, 11.0, machine="two") + answered(20.0, machine="three")

    assert endpoint_watch.machines_after(answers, MOVE, until=15) == {"two"}


@contextlib.asynccontextmanager
async def api_server(status: int) -> AsyncIterator[int]:
    """Something that answers as an API server does; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} Said\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=await self_signed("endpoint")) as server:
        yield server.sockets[0].getsockname()[1]


async def test_the_client_tells_status_and_machine() -> None:
    """Two machines have two certificates, and one has the same each time."""
    context = endpoint_asker._context()
    async with api_server(200) as well, api_server(500) as unwell:
        first = await endpoint_asker.ask("127.0.0.1", well, context)
        again = await endpoint_asker.ask("127.0.0.1", well, context)
        other = await endpoint_asker.ask("127.0.0.1", unwell, context)

    assert first == again
    assert (first[0], other[0]) == (200, 500)
    assert first[1] != other[1]


async def test_the_client_asks_until_it_is_stopped(tmp_path: Path) -> None:
    """As a process it goes on when nobody answers any more, and its log can be read while it runs and after."""
    log = tmp_path / "answers"

    async def await_status(status: int) -> None:
        """Wait until a question has had this answer."""

        def is_there() -> bool:
            """Whether it has."""
            return any(answer.status == status for answer in endpoint_watch.read_answers(_whole(log)))

        # In a thread, because the loop has to serve.
        await asyncio.to_thread(eventually, f"an answer {status}", is_there, within_seconds=30)

    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(api_server(200))
        with endpoint_watch.asking("127.0.0.1", port, log):
            await await_status(200)
            await stack.aclose()
            await await_status(0)

    answers = endpoint_watch.read_answers(log.read_text())
    assert {answer.status for answer in answers} == {0, 200}
    assert endpoint_watch.unexcused(answers, []) == [answer for answer in answers if answer.status == 0]


def _whole(log: Path) -> str:
    """The lines that have been written to their end."""
    text = log.read_text()
    return text[: text.rfind("\n") + 1]
