"""The part of CI that has machines: what cannot be had is no failure, a failing test is, and time ends everything.

The script runs as it is, in a tree where `make` and the tools that it calls are short scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAMS = ("busybox", "conntrack", "curl", "ip", "iptables", "nft", "nsenter")


class Tree:
    """A tree with the script.

    Args:
        directory: the tree's root.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for path in (".ci/e2e", "tests/e2e/packages.txt"):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / path, directory / path)
        self.write(".venv/bin/python", 'echo "$*" >>said; [ "$*" != "-m hack.docker status" ]')
        self.write("bin/make", 'echo "make $*" >>said')
        for name in PROGRAMS:
            self.write(f"bin/{name}", "exit 0")

    def write(self, path: str, script: str) -> None:
        """Let a program be a script."""
        place = self.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)

    def run(self, seconds: int = 3000, **constants: int) -> subprocess.CompletedProcess[str]:
        """Run the script with so many seconds, and with other constants than its own."""
        script = self.directory / ".ci" / "e2e"
        text = script.read_text()
        for name, value in constants.items():
            text, count = re.subn(rf"^{name}=\d+$", f"{name}={value}", text, flags=re.MULTILINE)
            assert count == 1, name
        script.write_text(text)
        variables = {"PATH": f"{self.directory}/bin:{os.environ['PATH']}", "STAGE_TIMES": str(self.directory / "times")}
        return subprocess.run(
            [script, str(seconds)], env=variables, capture_output=True, text=True, check=False, timeout=30
        )

    @property
    def said(self) -> list[str]:
        """What the tools were asked for."""
        file = self.directory / "said"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def results(self) -> dict[str, str]:
        """What the table of CI says, by stage."""
        file = self.directory / "times"
        lines = file.read_text().splitlines() if file.exists() else []
        return {stage: result for _, result, stage in (line.split("\t") for line in lines)}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree in which everything can be had."""
    return Tree(tmp_path)


def test_everything_in_time(tree: Tree) -> None:
    """Tests without node images come first, then images are made and their stories told; our engine ends with us."""
    done = tree.run(9000)

    assert done.returncode == 0, done.stderr
    assert [line for line in tree.said if "hack.docker" in line or line.startswith("make")] == [
        "-m hack.docker status",
        "-m hack.docker up",
        "make e2e ARGS=-x -m 'not machines and not full'",
        "make node-image",
        "make e2e ARGS=-x -m 'machines and not full'",
        "-m hack.docker down",
    ]


def test_somebody_s_engine_is_left_alone(tree: Tree) -> None:
    """An engine that answers before is not stopped; little time is spent on what is quick."""
    tree.write(".venv/bin/python", 'echo "$*" >>said')
    done = tree.run(1200)

    assert done.returncode == 0, done.stderr
    assert "-m hack.docker down" not in tree.said
    assert [line for line in tree.said if line.startswith("make")] == [
        "make e2e ARGS=-x -m 'not machines and not full'"
    ]
    assert tree.results == {"e2e of clusters": "skipped"}


@pytest.mark.parametrize("refused", ["-m hack.docker up", "-m tests.e2e"])
def test_no_engine_is_no_failure(tree: Tree, refused: str) -> None:
    """An engine that cannot be had, or cannot do what is needed, is a sentence and a line of the table."""
    tree.write(".venv/bin/python", f'[ "$*" != "{refused}" ] || {{ echo because; exit 2; }}')
    done = tree.run()

    assert (done.returncode, tree.results) == (0, {"e2e": "skipped"})
    assert "because" in done.stdout
    assert "No machines in this run" in done.stdout
    assert tree.said == [], "no test is run"


@pytest.mark.parametrize("broken", ["-m hack.docker up", "-m tests.e2e"])
def test_a_tool_that_breaks_is_a_failure(tree: Tree, broken: str) -> None:
    """A mistake of ours in what looks for an engine must not switch the tests off."""
    tree.write(".venv/bin/python", f'[ "$*" != "{broken}" ] || exit 1')
    done = tree.run()

    assert (done.returncode, tree.results) == (1, {})


def test_node_images_that_cannot_be_made_are_a_failure(tree: Tree) -> None:
    """Only their time may be over."""
    tree.write("bin/make", 'echo "make $*" >>said; [ "$1" != node-image ] || exit 2')
    done = tree.run(9000)

    assert done.returncode == 2
    assert [line for line in tree.said if line.startswith("make")][-1] == "make node-image"


def test_packages_that_cannot_be_had_are_no_failure(tree: Tree) -> None:
    """A program that is missing is installed; where that fails, that is said."""
    packages = tree.directory / "tests/e2e/packages.txt"
    packages.write_text(packages.read_text() + "no-such-program  no-such-package\n")
    tree.write("bin/apt-get", 'echo "apt-get $*" >>said; [ "$1" = update ]')
    tree.write("bin/sudo", 'shift; exec "$@"')
    done = tree.run()

    assert (done.returncode, tree.results) == (0, {"e2e": "skipped"})
    assert "packages.txt cannot be installed" in done.stdout
    assert [line.split()[1] for line in tree.said] == ["update", "install"]
    assert tree.said[-1].endswith("no-such-package"), "what is there is not installed again"


def test_a_failing_test_is_a_failure(tree: Tree) -> None:
    """What `make e2e` answers is answered, and nothing comes after it."""
    tree.write("bin/make", 'echo "make $*" >>said; exit 2')
    done = tree.run(9000)

    assert done.returncode == 2
    assert len([line for line in tree.said if line.startswith("make")]) == 1
    assert tree.said[-1] == "-m hack.docker down"


def test_time_that_is_over_is_no_failure(tree: Tree) -> None:
    """Tests that hang are interrupted, and killed with what they have started where that does not help."""
    noted = "printf '3\\tFAILED\\te2e\\n' >>$STAGE_TIMES"
    tree.write("bin/make", f"trap '' INT; {noted}; sleep 600 & echo $! >child; wait; sleep 600")
    done = tree.run(3, LEAST=0, GRACE=1)

    assert (done.returncode, tree.results) == (0, {"e2e": "stopped"})
    assert "FAILED" not in (tree.directory / "times").read_text()
    assert "it is not judged" in done.stdout
    child = Path("/proc") / (tree.directory / "child").read_text().strip()
    eventually("the child is gone", lambda: not child.exists() or "Z" in (child / "stat").read_text().split()[2])


def test_a_test_that_has_failed_is_a_failure_when_time_is_over(tree: Tree) -> None:
    """Its teardown may take all that is left."""
    tree.write("bin/make", "touch $E2E_FAILED; sleep 600")
    done = tree.run(3, LEAST=0, GRACE=1)

    assert (done.returncode, tree.results) == (1, {})


def test_an_interrupt_reaches_what_runs(tree: Tree) -> None:
    """The tests clean up before the engine goes, and nothing is begun after them."""
    tree.write("bin/make", "trap 'sleep 0.3; echo cleaned >>said; exit 1' INT; echo running >>said; sleep 60 & wait")
    script = tree.directory / ".ci" / "e2e"
    variables = {"PATH": f"{tree.directory}/bin:{os.environ['PATH']}", "STAGE_TIMES": str(tree.directory / "times")}
    with subprocess.Popen([script, "9000"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        eventually("the tests run", lambda: "running" in tree.said, within_seconds=20)
        run.terminate()
        assert run.wait(20) == 130
    assert tree.said[tree.said.index("running") + 1 :] == ["cleaned", "-m hack.docker down"]


def test_little_time_is_not_begun_with(tree: Tree) -> None:
    """Where the other tests have taken all the time, nothing is installed or started."""
    done = tree.run(400)

    assert (done.returncode, tree.results, tree.said) == (0, {"e2e": "skipped"}, [])
    assert "only 6 minutes are left" in done.stdout
