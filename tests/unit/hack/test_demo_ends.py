"""How the demo ends where it does not come up: what it has started is stopped, what is left is said and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from hack.controlplane.progress import PlainReporter
from hack.demo import down, machines, memory, question, up
from hack.demo.__main__ import main
from hack.demo.machines import NoMachinesError
from hack.demo.memory import Memory
from tests.unit.hack.personfake import SERVER, Person


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    """A person whose engine is stopped in the end."""
    made = Person(tmp_path, monkeypatch)
    yield made
    made.engine.stop()


@pytest.mark.parametrize(
    ("typed", "may"), [("\n", True), ("y\n", True), ("Yes\n", True), ("n\n", False), ("what\n", False), ("", False)]
)
def test_answers(person: Person, typed: str, may: bool) -> None:
    """Enter is yes. Ctrl-D is an answer, too: no."""
    person.sits_at_terminal(typed)

    assert question.may("It is put back.") is may


def test_docker_is_not_installed_unasked(person: Person) -> None:
    """On a terminal a person decides, before anything is installed."""
    (person.programs / "dockerd").unlink()
    person.program("apt-get", "touch $HOME/installed")
    log = StringIO()
    person.sits_at_terminal("n\n")

    with pytest.raises(NoMachinesError, match="nothing was to be installed"):
        machines.start_engine({**person.environ, "PATH": str(person.programs)}, PlainReporter(log))

    assert "package docker.io" in log.getvalue()
    assert not person.engine.is_running


def test_what_is_installed_is_said_where_nobody_can_be_asked(person: Person) -> None:
    """Without a terminal it goes on, and the log has said so before."""
    (person.programs / "dockerd").unlink()
    person.program("apt-get", "echo no packages here >&2; exit 1")
    log = StringIO()

    with pytest.raises(NoMachinesError, match="no packages here"):
        machines.start_engine(person.environ, PlainReporter(log))

    assert "package docker.io" in log.getvalue().splitlines()[0]


def test_debootstrap_is_not_installed_unasked(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for before anything is compiled, and says what it is for."""
    # This computer may have it outside of PATH, where it is looked for, too.
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    person.sits_at_terminal("n\n")
    log = StringIO()

    with pytest.raises(NoMachinesError, match="nothing was to be installed"):
        machines.find(person.engine.host, person.environ, PlainReporter(log))

    assert "debootstrap, which makes the floor of the images" in log.getvalue()


def test_the_engine_of_a_demo_that_cannot_have_images_is_stopped(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was started for nothing else, and nobody would think of it."""
    person.has_cluster()

    assert main(["up", "--guests", "docker"], person.environ) == 1

    assert "node images cannot be made (debootstrap failed" in capsys.readouterr().err
    assert any(call.startswith("image inspect") for call in person.calls("docker"))
    assert not person.engine.is_running
    assert memory.recall(person.demo) == Memory()


def test_a_demo_without_machines_has_no_engine(person: Person) -> None:
    """Who goes on with empty instances needs none, be it for lack of images or after a no."""
    log = StringIO()

    assert up._machines(person.demo, person.environ, "auto", PlainReporter(log)) is None

    assert "The rack's instances stay empty" in log.getvalue()
    assert any(call.startswith("image inspect") for call in person.calls("docker"))
    assert not person.engine.is_running
    assert memory.recall(person.demo) == Memory()


def test_ctrl_c_while_images_are_made_stops_the_engine(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """And what is said then is true."""
    person.has_cluster()
    # The signal comes while Docker is at work.
    person.at_images("kill -INT $PPID; exit 130")

    assert main(["up", "--guests", "docker"], person.environ) == 130

    assert any(call.startswith("image inspect") for call in person.calls("docker"))
    assert not person.engine.is_running
    assert "nothing is left running" in capsys.readouterr().err


def test_an_engine_that_was_there_stays(person: Person) -> None:
    """Only what the demo has started is the demo's to stop."""
    person.has_cluster()
    person.engine.start()

    assert main(["up", "--guests", "docker"], person.environ) == 1

    assert person.engine.is_running


def test_ctrl_c_names_what_is_left(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """As long as something is remembered, there is something to take away."""
    person.has_cluster()
    memory.remember(person.demo, Memory(is_installed=True))
    person.program("kubectl", "kill -INT $PPID; exit 130")

    assert main(["down"], person.environ) == 130

    assert "make demo-down" in capsys.readouterr().err
    assert memory.recall(person.demo).is_installed


def test_a_cluster_that_does_not_answer_can_be_left_later(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """What the second try needs is kept until it succeeds."""
    person.has_cluster()
    memory.remember(person.demo, Memory(is_installed=True))
    kubeconfig = person.demo.directory / "management.kubeconfig"
    kubeconfig.write_text("the copy")
    person.loses_cluster()

    assert main(["down"], person.environ) == 1
    said = capsys.readouterr().err
    assert "connection refused" in said
    assert "run it again" in said
    assert kubeconfig.read_text() == "the copy"

    person.loses_cluster(is_back=True)
    assert main(["down"], person.environ) == 0
    assert any(call.startswith("delete namespace demo") for call in person.calls("kubectl"))
    assert not person.demo.directory.exists()


def test_a_cluster_that_is_gone_for_good(person: Person) -> None:
    """The rest can be stopped without it."""
    person.has_cluster()
    memory.remember(person.demo, Memory(is_installed=True))
    person.loses_cluster()

    assert main(["down", "--abandon"], person.environ) == 0

    assert person.calls("kubectl") == []
    assert not person.demo.directory.exists()


def test_a_kubeconfig_is_judged_before_the_demo_that_is_up_goes(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has mistyped it keeps what there is."""
    person.has_cluster()
    person.loses_cluster()
    memory.remember(person.demo, Memory())

    assert main(["up", "--guests", "none"], person.environ) == 1

    assert "names no cluster" in capsys.readouterr().err
    assert person.demo.directory.exists()


def test_a_cluster_is_not_changed_unasked(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal a person decides whether kinds and namespaces go into it; until then it is only read."""
    person.has_cluster()
    memory.remember(person.demo, Memory())
    person.sits_at_terminal("n\n")

    assert main(["up", "--guests", "none"], person.environ) == 1

    assert f"Nothing was changed in {SERVER}" in capsys.readouterr().err
    assert person.demo.directory.exists()
    assert {call.split()[0] for call in person.calls("kubectl")} == {"config", "get"}


def test_a_busy_engine_is_kept_in_mind(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else has taken to it: it stays, and so does what is known of it."""
    monkeypatch.setattr(down, "_BUILD_SECONDS", 0.0)
    person.engine.start()
    begun = Memory(docker_host=person.engine.host, is_engine_ours=True)
    memory.remember(person.demo, begun)
    person.program("docker", "[ $1 != ps ] || echo a-container")

    down.settle(person.demo, person.environ)

    assert person.engine.is_running
    assert memory.recall(person.demo) == begun
