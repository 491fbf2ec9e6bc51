"""A log gets a line now and then, and says how it ended."""

from __future__ import annotations

import io

import pytest

from hack.controlplane.progress import PlainReporter, format_seconds, reporter_for


class Clock:
    """Seconds that pass on command."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """What time it is."""
        return self.now


def test_a_line_every_half_minute() -> None:
    """However often the work reports, the log has a line at the start, one each half minute, and one at the end."""
    stream, clock = io.StringIO(), Clock()
    with PlainReporter(stream, clock).stage("Building etcd", expected_seconds=60) as stage:
        for second in range(65):
            clock.now = 100.0 + second
            stage.update("some/package", done=second, total=100)
        clock.now = 170.0

    assert stream.getvalue().splitlines() == [
        "Building etcd ... (about 1m00s on an idle machine)",
        "Building etcd: 25s so far: 25 of 100, some/package",
        "Building etcd: 50s so far: 50 of 100, some/package",
        "Building etcd: done in 1m10s",
    ]


def test_silence_gets_lines_too() -> None:
    """A linker says nothing for a minute; the log does."""
    stream, clock = io.StringIO(), Clock()
    with PlainReporter(stream, clock).stage("Linking") as stage:
        clock.now += 30
        stage.tick()

    assert stream.getvalue().splitlines() == ["Linking ...", "Linking: 30s so far", "Linking: done in 30s"]


def test_a_failure_is_not_called_done() -> None:
    """When the work raises, the last line says that it failed."""
    stream, clock = io.StringIO(), Clock()
    with pytest.raises(ValueError, match="no"), PlainReporter(stream, clock).stage("Building"):
        raise ValueError("no")

    assert stream.getvalue().splitlines()[-1] == "Building: failed after 0s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (60, "1m00s"), (605, "10m05s"), (3720, "1h02m")]
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    """Seconds, minutes or hours, whichever people would say."""
    assert format_seconds(seconds) == text


def test_a_file_is_no_terminal() -> None:
    """Anything but a terminal gets plain lines."""
    assert isinstance(reporter_for(io.StringIO()), PlainReporter)
