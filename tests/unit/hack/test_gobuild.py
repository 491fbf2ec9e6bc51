"""Programs are built once for what determines them, and what goes wrong is explained."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from hack.controlplane import gobuild
from hack.controlplane.errors import BuildError, DiskSpaceError, ToolchainError
from hack.controlplane.paths import TOOLS
from hack.controlplane.programs import ETCD, FLANNELD, KUBECTL, PAUSE
from hack.controlplane.progress import PlainReporter
from hack.controlplane.trimmed import trimmed_main
from tests.unit.hack.gofake import FakeGo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def go(tmp_path: Path) -> FakeGo:
    """A Go that is new enough."""
    return FakeGo(tmp_path)


def builder(go: FakeGo, stream: io.StringIO | None = None) -> gobuild.Builder:
    """A builder that uses the fake."""
    return gobuild.Builder(
        gobuild.find_go(go.environ),
        cache=go.cache,
        reporter=PlainReporter(stream or io.StringIO()),
        environ=go.environ,
    )


def test_a_missing_go_is_explained(tmp_path: Path) -> None:
    """The message says what is missing, what for, which version, and what to do without it."""
    with pytest.raises(ToolchainError) as failure:
        gobuild.find_go({"PATH": str(tmp_path), "HOME": str(tmp_path)})

    message = str(failure.value)
    assert message.startswith("Go is missing")
    assert "Install Go 1.26.0 or newer" in message
    assert "KUBEBUILDER_ASSETS" in message


@pytest.mark.parametrize("version", ["go1.25.9", "go1.3", "go1.26rc2"])
def test_an_old_go_is_explained(tmp_path: Path, version: str) -> None:
    """The message names the version found and the version needed."""
    go = FakeGo(tmp_path, version)

    with pytest.raises(ToolchainError, match=f"Go is too old: .*{version}, the control plane needs 1.26.0"):
        gobuild.find_go(go.environ)


@pytest.mark.parametrize("version", ["go1.26.0", "go1.27rc1", "go1.100.1", "go2.0", "go1.26.8 X:experiment"])
def test_a_new_go_will_do(tmp_path: Path, version: str) -> None:
    """Versions compare by number, and what Go says of its experiments is no part of them."""
    assert gobuild.find_go(FakeGo(tmp_path, version).environ).version == version.removesuffix(" X:experiment")


def test_a_go_that_refuses_is_quoted(go: FakeGo) -> None:
    """With GOTOOLCHAIN=local an old Go refuses by itself."""
    go.fail("env", "go: go.mod requires go >= 1.26.0 (running go 1.24.1; GOTOOLCHAIN=local)")

    with pytest.raises(ToolchainError, match=r"running go 1\.24\.1"):
        gobuild.find_go(go.environ)


def test_a_program_is_built_once(go: FakeGo) -> None:
    """The second time it is taken from the cache; a note beside it tells how it was made."""
    first = builder(go).build(ETCD)
    second = builder(go).build(ETCD)

    assert first == second
    assert first.name == "etcd"
    assert first.is_relative_to(go.cache / "bin" / "etcd")
    assert len(go.calls("build")) == 1
    note = json.loads((first.parent / "build.json").read_text())
    assert (note["version"], note["go"], note["packages_compiled"]) == (ETCD.version, "go1.26.8", 1)


def test_the_users_flags_do_not_change_the_result(go: FakeGo) -> None:
    """GOFLAGS of the environment is replaced, cgo is off."""
    builder(go).build(ETCD)

    (call,) = go.calls("build")
    assert call.endswith("GOFLAGS=-buildvcs=false -trimpath -mod=readonly CGO_ENABLED=0")


def test_another_go_builds_anew(go: FakeGo) -> None:
    """The toolchain is part of what determines a program."""
    old = builder(go).build(ETCD)
    go.is_version("go1.27.0")

    new = builder(go).build(ETCD)

    assert new != old
    assert old.exists()
    assert "go1.27.0-linux-amd64-v1" in new.parent.name


def test_the_pin_follows_the_tools_module(tmp_path: Path) -> None:
    """A changed go.mod or go.sum changes the pin of its own programs, and of no others."""
    tools = tmp_path / "tools"
    shutil.copytree(TOOLS, tools)
    before = gobuild.pin(ETCD, tools), gobuild.pin(KUBECTL, tools)
    with (tools / "etcd" / "go.sum").open("a") as file:
        file.write("example.org/a v1.0.0 h1:x\n")

    assert before == (gobuild.pin(ETCD), gobuild.pin(KUBECTL))
    assert gobuild.pin(ETCD, tools) != before[0]
    assert gobuild.pin(KUBECTL, tools) == before[1]


def test_without_go_the_cache_still_serves(go: FakeGo) -> None:
    """A machine that lost its Go runs what it has built."""
    built = builder(go).build(ETCD)

    assert gobuild.cached(ETCD, go.cache, None) == built
    assert gobuild.cached(KUBECTL, go.cache, None) is None


def test_a_failed_build_leaves_nothing(go: FakeGo) -> None:
    """The message has the compiler's words; the cache has no half of a program, and the next build works."""
    go.fail("build", "x.go:1: syntax error\n")
    with pytest.raises(BuildError, match=r"(?s)Building etcd v.* failed.*syntax error"):
        builder(go).build(ETCD)

    assert list((go.cache / "bin" / "etcd").iterdir()) == []


def test_a_killed_linker_is_explained(go: FakeGo) -> None:
    """The usual reason is memory."""
    go.fail("build", "/usr/local/go/pkg/tool/linux_amd64/link: signal: killed\n")

    with pytest.raises(BuildError, match="2 GB of memory"):
        builder(go).build(ETCD)


def test_a_failed_download_is_explained(go: FakeGo) -> None:
    """The message quotes Go and says what to check."""
    go.fail("list", "go: example.org/a@v1.0.0: dial tcp: lookup failed\n")

    with pytest.raises(BuildError, match=r"(?s)Downloading the modules of etcd.*lookup failed.*go env GOPROXY"):
        builder(go).build(ETCD)


def test_a_full_disk_is_noticed_before_the_work(go: FakeGo) -> None:
    """The message names the file system, what is free, and what is needed; nothing was started."""
    huge = dataclasses.replace(ETCD, size_mb=10**9)

    with pytest.raises(
        DiskSpaceError, match=r"Too little disk space to build etcd: .* MB free, about \d+ MB are needed"
    ):
        builder(go).build(huge)
    assert go.calls("list") == []


def test_builders_take_turns(go: FakeGo) -> None:
    """A second builder waits, says for whom, and finds the program built when its turn comes."""
    stream = io.StringIO()
    made = builder(go).build(ETCD)
    shutil.copytree(made.parent, go.cache / "aside")
    shutil.rmtree(made.parent)
    with (go.cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        waiting = threading.Thread(target=builder(go, stream).build, args=[ETCD])
        waiting.start()
        while "process 4711 is building" not in stream.getvalue():
            waiting.join(0.01)
        (go.cache / "aside").rename(made.parent)
    waiting.join(10)

    assert len(go.calls("build")) == 1


def test_a_program_is_compiled_without_what_it_leaves_out(tmp_path: Path) -> None:
    """The main package is copied beside the go.mod that pins it, without those imports and without its tests."""
    sources = tmp_path / "flannel"
    sources.mkdir()
    kept = 'import (\n\t_ "github.com/flannel-io/flannel/pkg/backend/vxlan"\n'
    gone = "".join(f'\t_ "{package}"\n' for package in FLANNELD.left_out)
    (sources / "main.go").write_text(f"package main\n{kept}{gone})\n")
    (sources / "main_test.go").write_text("package main\n")

    main = trimmed_main(FLANNELD, sources, TOOLS / "flannel", tmp_path / "main")

    assert main.package == "."
    assert {path.name for path in main.directory.iterdir()} == {"go.mod", "go.sum", "main.go"}
    assert (main.directory / "main.go").read_text() == f"package main\n{kept})\n"
    assert (main.directory / "go.mod").read_text() == (TOOLS / "flannel" / "go.mod").read_text()


def test_what_is_not_there_cannot_be_left_out(tmp_path: Path) -> None:
    """A new version that moved a package stops the build before the module of that package is asked for."""
    (tmp_path / "main.go").write_text("package main\n")

    with pytest.raises(BuildError, match=r"does not import .*tencentvpc, .*udp, which is to be left out"):
        trimmed_main(FLANNELD, tmp_path, TOOLS / "flannel", tmp_path / "main")


def test_what_is_left_out_is_part_of_the_pin() -> None:
    """So is the version that the linker writes."""
    pins = {
        gobuild.pin(program)
        for program in (
            FLANNELD,
            dataclasses.replace(FLANNELD, left_out=()),
            KUBECTL,
            KUBECTL.relinked("v1.36.4+relinked"),
            KUBECTL.pinned_by("kubernetes-1.35"),
        )
    }

    assert len(pins) == 5


def test_the_pin_follows_sources_of_our_own(tmp_path: Path) -> None:
    """A tools module may hold a program itself."""
    tools = tmp_path / "tools"
    shutil.copytree(TOOLS, tools)
    before = gobuild.pin(PAUSE, tools)
    (tools / "pause" / "main.go").write_text("package main\n")

    assert before == gobuild.pin(PAUSE)
    assert gobuild.pin(PAUSE, tools) != before
