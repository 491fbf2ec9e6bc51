"""Guests live and die as the API says, and what happens to them shows in the API."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.lab import NAME, USER_DATA_SECRET, Lab, another_rack, host_routes, host_setting
from tests.integration.waiting import eventually
from tests.leaks import find_leaks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETTINGS = ("fs.inotify.max_user_instances", "fs.inotify.max_user_watches", "kernel.panic", "vm.overcommit_memory")


def test_a_guest_s_life(lab: Lab) -> None:
    """A guest boots with its seed, keeps its disk over reboot and stop, and goes with its disk (semantics 3, 9.1)."""
    made = lab.create("first", user_data=base64.b64encode(USER_DATA_SECRET.encode()).decode())
    lab.await_console("first", "ready")
    assert "boot 1 of first" in lab.console("first")
    seed = "/var/lib/cloud/seed/nocloud"
    meta_data = json.loads(lab.within("first", "cat", f"{seed}/meta-data"))
    assert meta_data == {"instance-id": made["id"], "local-hostname": "first", "public-keys": []}
    assert lab.within("first", "cat", f"{seed}/user-data") == USER_DATA_SECRET
    assert lab.within("first", "stat", "-c", "%a", seed, f"{seed}/user-data").split() == ["700", "600"]

    lab.power("first", "reboot")
    lab.await_console("first", "boot 2 of first")
    assert "boot 1 of first" in lab.console("first"), "a reboot does not begin a console anew"
    lab.await_state("first", "running")

    lab.power("first", "stop")
    lab.await_state("first", "stopped")
    assert lab.docker("inspect", "-f", "{{.State.Running}}", lab.container("first")) == "false"
    lab.power("first", "start")
    lab.await_state("first", "running")
    lab.await_console("first", "boot 3 of first")
    assert "boot 2 of first" not in lab.console("first"), "a start does"

    lab.delete("first")
    eventually("the container goes with its disk", lambda: lab.ours()["containers"] == [f"capox-{NAME}-edge"])
    eventually("so does its volume", lambda: lab.ours()["volumes"] == [])


def test_a_disk_outlives_its_instance(lab: Lab) -> None:
    """What is on a boot disk is there when another instance boots from it, with a seed of its own (semantics 4.6)."""
    lab.create("first")
    lab.await_console("first", "ready")
    lab.power("first", "stop")
    lab.await_state("first", "stopped")
    lab.must(204, "DELETE", "/v1/instances/first?project=demo")

    second = lab.create("second", boot_disk={"type": "attach", "name": "first-boot"})

    lab.await_console("second", "boot 2 of second")
    assert second["id"] in lab.console("second")


def test_a_data_disk(lab: Lab) -> None:
    """A blank disk is empty, keeps what is written to it from instance to instance, and goes when it is deleted."""
    backend = {"type": "distributed", "disk_source": {"type": "blank", "block_size": 512}}
    disk = {"name": "data", "description": "", "size": 1024**3, "disk_backend": backend}
    lab.create("first", disks=[{"type": "create", **disk}])
    assert lab.within("first", "ls", "/mnt/data") == ""
    lab.within("first", "sh", "-c", "echo kept >/mnt/data/file")
    lab.delete("first")

    lab.create("second", disks=[{"type": "attach", "name": "data"}])
    assert lab.within("second", "cat", "/mnt/data/file") == "kept"

    lab.delete("second")
    lab.must(204, "DELETE", "/v1/disks/data?project=demo")
    eventually("the disk's volume goes", lambda: lab.ours()["volumes"] == [])


def test_a_guest_that_is_killed(lab: Lab) -> None:
    """A guest that is killed from outside is failed, and restarted where its policy lets it be (semantics 3.3)."""
    lab.create("never", auto_restart_policy="never")
    lab.create("again")

    lab.docker("kill", lab.container("never"), lab.container("again"))

    lab.await_state("never", "failed")
    lab.await_console("again", "boot 2 of again")
    lab.await_state("again", "running")
    assert lab.instance("again")["time_last_auto_restarted"] is not None
    lab.power("never", "start")
    lab.await_state("never", "running")
    lab.await_console("never", "boot 2 of never")


def test_a_guest_that_is_gone(lab: Lab) -> None:
    """A guest whose container was removed from outside is failed, and cannot start; it can be deleted."""
    lab.create("first", auto_restart_policy="never")

    lab.docker("rm", "-f", lab.container("first"))

    lab.await_state("first", "failed")
    lab.power("first", "start")
    lab.await_state("first", "failed")
    lab.delete("first")
    eventually("nothing is left", lambda: lab.ours()["volumes"] == [])


def test_a_guest_that_acts_itself(lab: Lab) -> None:
    """A guest's own reboot is a reboot, and its own power-off a stop that nobody undoes (semantics 3.3)."""
    lab.create("first")
    lab.await_console("first", "ready")

    lab.within("first", "sh", "-c", "reboot -f &")
    lab.await_console("first", "boot 2 of first")
    lab.await_state("first", "running")

    lab.within("first", "sh", "-c", "poweroff -f &")
    lab.await_state("first", "stopped")
    assert lab.instance("first")["time_last_auto_restarted"] is None


def test_commanded_failures(lab: Lab) -> None:
    """What the control endpoint does to an instance happens to its guest as well."""
    lab.create("first", auto_restart_policy="never")
    lab.rack.control.crash("first")
    lab.await_state("first", "failed")
    assert lab.docker("inspect", "-f", "{{.State.Running}}", lab.container("first")) == "false"


def test_nothing_is_left(docker_host: str, image: str, tmp_path: Path) -> None:
    """A rack that ends leaves this computer as it was, and what is not its own alone; its log tells no user data."""
    settings, routes = {name: host_setting(name) for name in SETTINGS}, host_routes()
    with Lab(tmp_path, docker_host, image) as lab:
        lab.docker("volume", "create", "somebody-s")
        try:
            lab.create("first", user_data=base64.b64encode(USER_DATA_SECRET.encode()).decode())
            lab.within("first", "sh", "-c", "echo 10 >/proc/sys/kernel/panic")
            assert int(host_setting("fs.inotify.max_user_instances")) >= 8192
            assert lab.rack.stop() == 0
            assert lab.ours() == {"containers": [], "volumes": [], "images": []}
            assert {name: host_setting(name) for name in SETTINGS} == settings
            assert host_routes() == routes
            log = lab.rack.log_file.read_text()
            assert find_leaks({"user data": USER_DATA_SECRET.encode()}, {"the log": log}) == []
            assert lab.docker("volume", "ls", "-q", "--filter", "name=somebody-s") == "somebody-s"
        finally:
            lab.docker("volume", "rm", "somebody-s")


def test_the_last_of_several_racks_puts_back(docker_host: str, image: str, tmp_path: Path) -> None:
    """Settings stay as long as any rack has guests, and are put back also where somebody removed its containers."""
    settings = {name: host_setting(name) for name in SETTINGS}
    (tmp_path / "second").mkdir()
    with Lab(tmp_path, docker_host, image) as first:
        with Lab(tmp_path / "second", docker_host, image, **another_rack()) as second:
            first.create("first")
            first.within("first", "sh", "-c", "echo 10 >/proc/sys/kernel/panic")
            assert first.rack.stop() == 0
            assert int(host_setting("fs.inotify.max_user_instances")) >= 8192
            assert host_setting("kernel.panic") == "10"

            second.docker("rm", "-f", f"capox-{NAME}b-edge")
            assert second.rack.stop() == 0
        assert {name: host_setting(name) for name in SETTINGS} == settings


def test_a_killed_rack_is_cleaned_up_after(docker_host: str, image: str, tmp_path: Path) -> None:
    """What a killed rack left is removed by the next of its name, and the host's settings are those of before."""
    settings = {name: host_setting(name) for name in SETTINGS}
    with Lab(tmp_path, docker_host, image) as lab:
        lab.create("first")
        lab.rack.kill()
    with Lab(tmp_path, docker_host, image) as lab:
        assert lab.ours()["containers"] == [f"capox-{NAME}-edge"]
        assert lab.ours()["volumes"] == []
    assert {name: host_setting(name) for name in SETTINGS} == settings


def test_a_name_is_held(docker_host: str, image: str, tmp_path: Path) -> None:
    """A second rack of the same name, whoever runs it, is refused before it removes what the first one has."""
    (tmp_path / "second").mkdir()
    with Lab(tmp_path, docker_host, image) as lab:
        lab.create("first")
        with pytest.raises(AssertionError, match="another rack has guests under the name"):
            Lab(tmp_path / "second", docker_host, image).__enter__()
        lab.await_console("first", "ready")
        assert lab.instance("first")["run_state"] == "running"
