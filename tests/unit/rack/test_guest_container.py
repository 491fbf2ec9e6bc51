"""Guests as words for Docker, what their ends mean, their seeds, and acts that follow one another."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import io
import json
import tarfile

import pytest

from capox.rack import records
from capox.rack.guests import container, host, seed
from capox.rack.guests.acts import Acts
from capox.rack.guests.fabric import networks_of
from capox.rack.guests.wiring import Address, Network

MOMENT = datetime.datetime(2026, 9, 1, tzinfo=datetime.UTC)
LABELS = container.Labels(rack="lab")
MACHINE = container.Machine(
    instance="11111111-2222-4333-8444-555555555555",
    name="capox-lab-first-aaaaaaaa",
    hostname="first",
    image="node:1",
    start=("/sbin/init", "--quiet"),
    volumes=(("capox-lab-disk-a", "/var"), ("capox-lab-disk-b", "/mnt/data")),
    memory_bytes=1024**3,
    cpus=2,
    dns="100.64.217.1",
    is_on_network=True,
)


def instance() -> records.Instance:
    """An instance `first`."""
    return records.Instance(
        id=MACHINE.instance,
        name="first",
        description="",
        time_created=MOMENT,
        time_modified=MOMENT,
        project="demo",
        hostname="first.example",
        ncpus=2,
        memory_bytes=1024**3,
        user_data=b"#cloud-config\n\xff",
        ssh_keys=(),
        state="stopped",
        time_run_state_updated=MOMENT,
    )


def test_the_seed() -> None:
    """`meta-data` is JSON with three keys, `user-data` what the instance was given; only root reads them (9.1)."""
    archive = seed.archive(instance(), ["ssh-ed25519 AAAA admin"])

    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: member for member in tar}
        contents = {name: tar.extractfile(member) for name, member in members.items() if member.isfile()}
        meta_data = contents["var/lib/cloud/seed/nocloud/meta-data"]
        user_data = contents["var/lib/cloud/seed/nocloud/user-data"]
        assert meta_data is not None
        assert user_data is not None
        assert json.loads(meta_data.read()) == {
            "instance-id": MACHINE.instance,
            "local-hostname": "first.example",
            "public-keys": ["ssh-ed25519 AAAA admin"],
        }
        assert user_data.read() == b"#cloud-config\n\xff"
    assert len(contents) == 2
    assert {member.mode for member in members.values() if member.isfile()} == {0o600}
    assert {member.mode for member in members.values() if member.isdir()} == {0o700}


def test_a_machine_s_words() -> None:
    """A container has the rack's label, its volumes, no network of Docker's, and waits for its NIC before its init."""
    words = MACHINE.words(LABELS)
    assert words[:2] == ["create", "--name"]
    assert words[words.index("--network") + 1] == "none"
    assert "capox.rack=lab" in words
    assert f"capox.instance={MACHINE.instance}" in words
    assert "type=volume,source=capox-lab-disk-b,target=/mnt/data" in words
    image = words.index("node:1")
    assert words[image - 2 : image] == ["--entrypoint", "/bin/sh"]
    assert "/proc/net/route" in words[image + 2]
    assert words[image + 4 :] == ["/sbin/init", "--quiet"]

    alone = dataclasses.replace(MACHINE, is_on_network=False).words(LABELS)
    assert alone[alone.index("node:1") + 2] == 'exec "$@"'


def test_a_device_s_name_fits() -> None:
    """The kernel takes 15 characters, and the configuration's longest name leaves them different from others."""
    assert container.Labels(rack="a" * 9).device == f"capox-{'a' * 9}"
    assert len(container.Labels(rack="a" * 9).device) == 15


@pytest.mark.parametrize(
    ("code", "expected"), [(129, "restart"), (130, "power_off"), (0, "power_off"), (137, "crash"), (1, "crash")]
)
def test_endings(code: int, expected: str) -> None:
    """A guest's reboot and power-off are told from its death by what ended its first process."""
    assert container.ending(code) == expected


def test_networks_of_ranges() -> None:
    """A pool's ranges become as few networks as cover them; IPv6 is left out."""
    ranges = [
        (Address("198.51.100.0"), Address("198.51.100.127")),
        (Address("198.51.100.128"), Address("198.51.100.255")),
        (Address("203.0.113.10"), Address("203.0.113.11")),
    ]
    assert networks_of(ranges) == [Network("198.51.100.0/24"), Network("203.0.113.10/31")]


async def test_acts_follow_one_another() -> None:
    """Acts are done in their order, one that fails stops none, and who waits is told when all are over."""
    done: list[str] = []
    failures: list[str] = []
    acts = Acts(lambda error: failures.append(str(error)))
    gate = asyncio.Event()

    async def first() -> None:
        """Take a while."""
        await gate.wait()
        done.append("first")

    async def failing() -> None:
        """Fail."""
        raise ValueError("no")

    async def last() -> None:
        """Come last."""
        done.append("last")

    for act in (first, failing, last):
        acts.add(act)
    idle = asyncio.Event()
    acts.when_idle(idle.set)
    await asyncio.sleep(0)
    assert done == []
    gate.set()
    await idle.wait()

    assert (done, failures) == (["first", "last"], ["no"])
    acts.when_idle(lambda: done.append("at once"))
    assert done[-1] == "at once"


async def test_acts_can_be_given_up() -> None:
    """Acts that are stopped do nothing more, also not those that were waiting."""
    begun: list[str] = []
    acts = Acts(lambda error: begun.append(str(error)))

    async def waiting() -> None:
        """Wait for ever."""
        begun.append("begun")
        await asyncio.Event().wait()

    acts.add(waiting)
    acts.add(waiting)
    await asyncio.sleep(0)
    await acts.stop()
    assert begun == ["begun"]


def test_the_host_s_changes_are_told() -> None:
    """Whoever is asked reads each interface, network and setting that is going to be changed."""
    told = "\n".join(host.questions("capox-lab", Network("100.64.217.0/30"), [Network("198.51.100.0/24")], cpus=8))
    for what in ("capox-lab", "100.64.217.1/30", "198.51.100.0/24", "nf_conntrack_max to 262144", "kernel.panic"):
        assert what in told
