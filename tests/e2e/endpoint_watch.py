"""What a client of a cluster's endpoint saw, held against what the rack was asked to do meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e import endpoint_asker

STOP_SECONDS = 30
MOMENT_SECONDS = 1.0
"""How far a question may lie from a move and still be about it: what it was sent with was on its way."""

OK = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one question.

    Attributes:
        began: when it was asked, in seconds of the wall clock.
        ended: when it was over.
        status: what was answered; 0 is nothing.
        machine: whose certificate was shown.
    """

    began: float
    ended: float
    status: int
    machine: str


@dataclass(frozen=True, slots=True)
class Move:
    """A detach of an address and the attach that followed, as the rack's log of calls has them.

    Attributes:
        began: when the detach arrived.
        ended: when the attach was answered.
        rack_seconds: how long the rack took for the two of them.
        between: what else it was asked meanwhile, each `METHOD operation`.
    """

    began: float
    ended: float
    rack_seconds: float
    between: tuple[str, ...]

    @property
    def writes(self) -> list[str]:
        """What it was asked to change meanwhile."""
        return [each for each in self.between if not each.startswith("GET ")]


@contextlib.contextmanager
def asking(address: str, port: int, log: Path) -> Iterator[None]:
    """Have a client ask, in a process of its own, as long as the context lasts."""
    command = [sys.executable, endpoint_asker.__file__, address, str(port)]
    with log.open("wb") as written, subprocess.Popen(command, stdout=written) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                code = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert code == 0, f"the client ended by itself or badly: {code}"


def read_answers(text: str) -> list[Answer]:
    """The log of a client, by the time at which it asked."""
    fields = (line.split() for line in text.splitlines())
    found = [Answer(float(began), float(ended), int(status), machine) for began, ended, status, machine in fields]
    return sorted(found, key=lambda answer: answer.began)


def moves_of(calls: Sequence[dict[str, Any]], floating_ip: str) -> list[Move]:
    """The moves of a floating IP, by its id, in a log of calls."""
    found = []
    detach: dict[str, Any] | None = None
    for call in calls:
        if floating_ip not in call["objects"] or call["status"] is None or call["status"] >= 400:
            continue
        if call["operation"] == "floating_ip_detach":
            detach = call
        elif call["operation"] == "floating_ip_attach" and detach is not None:
            found.append(_move(calls, detach, call))
            detach = None
    return found


def _move(calls: Sequence[dict[str, Any]], detach: dict[str, Any], attach: dict[str, Any]) -> Move:
    between = [call for call in calls if detach["number"] < call["number"] < attach["number"]]
    return Move(
        began=_seconds(detach),
        ended=_seconds(attach) + attach["seconds"],
        rack_seconds=detach["seconds"] + attach["seconds"],
        between=tuple(f"{call['method']} {call['operation']}" for call in between),
    )


def _seconds(call: dict[str, Any]) -> float:
    return datetime.fromisoformat(call["time"]).timestamp()


def unexcused(answers: Sequence[Answer], moves: Sequence[Move]) -> list[Answer]:
    """The questions without a good answer that were asked when the address was not being moved."""
    return [
        answer
        for answer in answers
        if answer.status != OK
        and not any(move.began - MOMENT_SECONDS <= answer.began <= move.ended + MOMENT_SECONDS for move in moves)
    ]


def silences(answers: Sequence[Answer], *, longer_than: float) -> list[tuple[float, float]]:
    """When nobody had a good answer for longer than this: from one such answer to the next."""
    ends = sorted(answer.ended for answer in answers if answer.status == OK)
    return [(before, after) for before, after in itertools.pairwise(ends) if after - before > longer_than]


def silence_of(answers: Sequence[Answer], move: Move) -> float:
    """The longest time without a good answer that a move has a part in, in seconds; infinite when none came again."""
    ends = sorted(answer.ended for answer in answers if answer.status == OK)
    if not ends or ends[-1] < move.ended:
        return float("inf")
    # The last good answer before the detach was answered may arrive a little after it.
    limit = move.ended + MOMENT_SECONDS
    return max(
        (after - before for before, after in itertools.pairwise(ends) if after >= move.began and before <= limit),
        default=0.0,
    )


def longest_pause(answers: Sequence[Answer]) -> float:
    """For how many seconds nothing was asked: what happened meanwhile nobody has seen."""
    return max((after.began - before.began for before, after in itertools.pairwise(answers)), default=float("inf"))


def machines_after(answers: Sequence[Answer], move: Move, until: float) -> set[str]:
    """Who answered well what was asked between a move and a later moment."""
    return {answer.machine for answer in answers if answer.status == OK and move.ended <= answer.began < until}


def tell(answers: Sequence[Answer], moves: Sequence[Move]) -> str:
    """What was seen, for people: each move beside its silence, and every other silence."""
    good = sum(answer.status == OK for answer in answers)
    shown = {answer.machine for answer in answers} - {"-"}
    pause = f"for {longest_pause(answers):.2f} s at most the client asked nothing"
    lines = [f"{len(answers)} questions, {good} answered well, by {len(shown)} machines; {pause}"]
    lines += [
        f"moved at {_clock(move.began)}: nobody answered for {silence_of(answers, move):.2f} s; detach and attach took "
        f"the rack {move.rack_seconds:.2f} s, together with what lay between them {move.ended - move.began:.2f} s; "
        f"between: {', '.join(move.between) or 'nothing'}"
        for move in moves
    ]
    lines += [
        f"slow at {_clock(before)}: no answer came for {after - before:.2f} s"
        for before, after in silences(answers, longer_than=MOMENT_SECONDS)
        if not any(before <= move.ended + MOMENT_SECONDS and after >= move.began for move in moves)
    ]
    lines += [
        f"refused at {_clock(answer.began)}: {answer.status or 'nothing'} after {answer.ended - answer.began:.2f} s"
        for answer in unexcused(answers, moves)
    ]
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S.%f")[:-5]
