"""The settings of a computer whose racks overlap: raised for the first, put back by the last, whoever dies between.

A folder stands in for the kernel's settings and real processes for the racks; the scripts are those that a rack runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from capox.rack.guests.host import HostSettings
from capox.rack.guests.host_record import RecordError, User

BEFORE = {
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "2000000",
    "kernel.panic": "0",
    "kernel.panic_on_oops": "0",
    "net.netfilter.nf_conntrack_max": "500000",
}
RAISED = BEFORE | {"fs.inotify.max_user_instances": "8192", "net.netfilter.nf_conntrack_max": "131072"}


class Computer:
    """A computer's settings, and racks on it.

    Args:
        directory: for both.
    """

    def __init__(self, directory: Path) -> None:
        self.tree = directory / "sys"
        self.shared = directory / "shared"
        self.racks: list[subprocess.Popen[bytes]] = []
        for name, value in BEFORE.items():
            path = self.tree / name.replace(".", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def rack(self) -> HostSettings:
        """The settings as one more rack knows them, which is a process."""
        self.racks.append(subprocess.Popen(["/bin/sleep", "600"]))
        return HostSettings(self.shared, self.racks[-1].pid, self.tree)

    def kill(self, number: int) -> None:
        """Let a rack end without a chance to do anything; its parent has not asked about it yet."""
        self.racks[number].kill()
        os.waitid(os.P_PID, self.racks[number].pid, os.WEXITED | os.WNOWAIT)

    def set(self, name: str, value: str) -> None:
        """Set a setting, as a guest or a person does."""
        (self.tree / name.replace(".", "/")).write_text(f"{value}\n")

    @property
    def settings(self) -> dict[str, str]:
        """What they are."""
        return {name: (self.tree / name.replace(".", "/")).read_text().strip() for name in BEFORE}

    @property
    def records(self) -> list[Path]:
        """The files that hold something between the racks."""
        return sorted(self.shared.glob("*.json"))


async def shell(script: str) -> str:
    """Run a script."""
    process = await asyncio.create_subprocess_exec("/bin/sh", "-euc", script, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, script
    return output.decode().strip()


@pytest.fixture
def computer(tmp_path: Path) -> Iterator[Computer]:
    """A computer on which nothing has been changed."""
    made = Computer(tmp_path)
    yield made
    for rack in made.racks:
        rack.kill()
        rack.wait()


async def test_one_rack(computer: Computer) -> None:
    """Settings are raised where they have to be, and put back with what a kubelet wrote; nobody else reads the note."""
    rack = computer.rack()
    await rack.apply(shell, cpus=2)
    assert computer.settings == RAISED
    (record,) = computer.records
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(computer.shared.stat().st_mode) == 0o700
    computer.set("kernel.panic", "10")

    await rack.restore(shell)

    assert computer.settings == BEFORE
    assert computer.records == []


async def test_racks_that_overlap(computer: Computer) -> None:
    """Only the last one puts anything back, and it is the first one's finding that is put back."""
    first, second, third = computer.rack(), computer.rack(), computer.rack()
    await first.apply(shell, cpus=2)
    computer.set("kernel.panic", "10")
    await second.apply(shell, cpus=2)
    await first.restore(shell)
    assert computer.settings == RAISED | {"kernel.panic": "10"}
    await third.apply(shell, cpus=2)
    await second.restore(shell)
    assert computer.settings == RAISED | {"kernel.panic": "10"}

    await third.restore(shell)

    assert computer.settings == BEFORE


async def test_racks_that_come_and_go_at_once(computer: Computer) -> None:
    """Whoever writes, the others wait: nobody is forgotten, and nothing is put back under somebody's feet."""
    racks = [computer.rack() for _ in range(6)]
    await asyncio.gather(*(rack.apply(shell, cpus=2) for rack in racks))
    assert computer.settings == RAISED
    users = json.loads(computer.records[0].read_text())["users"]
    assert {user["pid"] for user in users} == {process.pid for process in computer.racks}

    await asyncio.gather(*(rack.restore(shell) for rack in racks[1:]))
    assert computer.settings == RAISED
    await racks[0].restore(shell)
    assert computer.settings == BEFORE


async def test_a_killed_rack_does_not_count(computer: Computer) -> None:
    """A rack that was killed keeps nothing as it was, whether it was the first or came later."""
    survivor = computer.rack()
    for number in (1, 2):
        await computer.rack().apply(shell, cpus=2)
        if number == 1:
            await survivor.apply(shell, cpus=2)
    computer.kill(1)
    computer.kill(2)

    await survivor.restore(shell)

    assert computer.settings == BEFORE
    assert computer.records == []


async def test_what_a_killed_rack_left_is_not_taken_for_what_was(computer: Computer) -> None:
    """The next rack, of whatever name, puts back what was there before the one that was killed."""
    await computer.rack().apply(shell, cpus=2)
    computer.set("kernel.panic", "10")
    computer.kill(0)

    following = computer.rack()
    await following.apply(shell, cpus=2)
    await following.restore(shell)

    assert computer.settings == BEFORE


async def test_a_pid_that_changed_hands_is_nobody(computer: Computer) -> None:
    """A process that got the id of a rack which is gone is not taken for it."""
    first, last = computer.rack(), computer.rack()
    await first.apply(shell, cpus=2)
    (record,) = computer.records
    content = json.loads(record.read_text())
    content["users"][0]["started"] -= 1
    record.write_text(json.dumps(content))
    await last.apply(shell, cpus=2)

    await last.restore(shell)

    assert computer.settings == BEFORE


async def test_a_person_s_own_change_stays(computer: Computer) -> None:
    """What is neither what it was nor what racks and guests write was decided by somebody, and is left as it is."""
    first, second = computer.rack(), computer.rack()
    await first.apply(shell, cpus=2)
    computer.set("fs.inotify.max_user_instances", "20000")
    computer.set("net.netfilter.nf_conntrack_max", "300000")
    await second.apply(shell, cpus=2)
    assert computer.settings["net.netfilter.nf_conntrack_max"] == "131072", "guests need it"
    await first.restore(shell)
    computer.set("kernel.panic_on_oops", "7")

    await second.restore(shell)

    assert computer.settings == BEFORE | {
        "fs.inotify.max_user_instances": "20000",
        "net.netfilter.nf_conntrack_max": "300000",
        "kernel.panic_on_oops": "7",
    }


async def test_a_record_of_another_boot_says_nothing(computer: Computer) -> None:
    """After a boot all settings are others, and what was noted before must not come back."""
    rack = computer.rack()
    await rack.apply(shell, cpus=2)
    (record,) = computer.records
    record.write_text(record.read_text().replace(json.loads(record.read_text())["boot"], "another"))
    computer.set("fs.inotify.max_user_instances", "256")

    following = computer.rack()
    await following.apply(shell, cpus=2)
    await following.restore(shell)

    assert computer.settings["fs.inotify.max_user_instances"] == "256"


async def test_a_rack_that_dies_while_it_sets(computer: Computer) -> None:
    """What is going to be set is noted first."""

    async def failing(script: str) -> str:
        """Do half of what is to be set."""
        if script.startswith("echo"):
            await shell(script.splitlines()[0])
            raise InterruptedError
        return await shell(script)

    with pytest.raises(InterruptedError):
        await computer.rack().apply(failing, cpus=2)
    assert computer.settings != BEFORE
    computer.kill(0)

    following = computer.rack()
    await following.apply(shell, cpus=2)
    await following.restore(shell)

    assert computer.settings == BEFORE


async def test_what_cannot_be_noted_is_not_changed(computer: Computer) -> None:
    """A place that cannot be written, and a file that nobody of us wrote, are named before anything is set."""
    computer.shared.write_text("")
    with pytest.raises(RecordError, match=r"shared/host-settings\.lock cannot be written: .*; racks with guests share"):
        await computer.rack().apply(shell, cpus=2)
    computer.shared.unlink()
    computer.shared.mkdir()
    (computer.shared / "host-settings.json").write_text("{}")
    with pytest.raises(RecordError, match=r"host-settings\.json is not what a rack wrote; remove it"):
        await computer.rack().apply(shell, cpus=2)
    assert computer.settings == BEFORE


def test_a_process_is_told_by_its_start(computer: Computer) -> None:
    """A process is known by id and start time; one that has ended is none, also while nobody has asked about it."""
    computer.rack()
    (process,) = computer.racks
    user = User.of(process.pid)
    assert user is not None
    another = user.model_copy(update={"started": user.started + 1})
    assert (user.is_alive, another.is_alive) == (True, False)

    computer.kill(0)
    assert User.of(process.pid) is None
    process.wait()
    assert User.of(process.pid) is None
