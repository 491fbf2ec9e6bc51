"""Each program comes from the first source that has it; what is given is meant."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from hack.controlplane.binaries import Binaries, Source, resolve
from hack.controlplane.errors import BinaryError, BuildError, ToolchainError
from hack.controlplane.programs import CLUSTERCTL, ENVTEST_PROGRAMS, ETCD, KUBE_CONTROLLER_MANAGER, KUBECTL
from hack.controlplane.progress import PlainReporter
from tests.unit.hack.gofake import FakeGo

if TYPE_CHECKING:
    from pathlib import Path

SOME = (ETCD, KUBECTL, KUBE_CONTROLLER_MANAGER)


@pytest.fixture
def go(tmp_path: Path) -> FakeGo:
    """A Go that is new enough, and empty caches."""
    return FakeGo(tmp_path / "machine")


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """A directory such as KUBEBUILDER_ASSETS names."""
    directory = tmp_path / "assets"
    directory.mkdir()
    for name in ENVTEST_PROGRAMS:
        executable(directory / name)
    return directory


def executable(path: Path) -> Path:
    """Make an executable file."""
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def sources(found: Binaries) -> dict[str, Source]:
    """Source by name of program."""
    return {binary.program.name: binary.source for binary in found}


def quiet() -> PlainReporter:
    """A reporter that nobody reads."""
    return PlainReporter(io.StringIO())


def test_a_given_path_comes_first(go: FakeGo, assets: Path, tmp_path: Path) -> None:
    """Then KUBEBUILDER_ASSETS for what such a directory holds, and a build for the rest."""
    given = executable(tmp_path / "my-etcd")
    environ = {**go.environ, "CAPOX_BIN_ETCD": str(given), "KUBEBUILDER_ASSETS": str(assets)}

    found = resolve(environ, programs=SOME, reporter=quiet())

    assert found.path(ETCD) == given
    assert found.path(KUBECTL) == assets / "kubectl"
    assert sources(found) == {
        "etcd": Source.GIVEN,
        "kubectl": Source.ASSETS,
        "kube-controller-manager": Source.BUILT,
    }


def test_everything_given_needs_no_go(tmp_path: Path) -> None:
    """Whoever brings all binaries needs no toolchain."""
    given = executable(tmp_path / "etcd")

    found = resolve({"PATH": "", "HOME": str(tmp_path), "CAPOX_BIN_ETCD": str(given)}, programs=[ETCD])

    assert sources(found) == {"etcd": Source.GIVEN}


def test_a_wrong_path_is_an_error(go: FakeGo, tmp_path: Path) -> None:
    """It is not quietly replaced by a build; the message names the variable and the value."""
    (tmp_path / "etcd").write_text("not executable")
    environ = {**go.environ, "CAPOX_BIN_ETCD": str(tmp_path / "etcd")}

    with pytest.raises(BinaryError, match=f"CAPOX_BIN_ETCD={tmp_path}/etcd: no executable file is there"):
        resolve(environ, programs=SOME, reporter=quiet())


def test_incomplete_assets_are_an_error(go: FakeGo, assets: Path) -> None:
    """The message says which program is missing."""
    (assets / "kubectl").unlink()

    with pytest.raises(BinaryError, match="there is no executable kubectl"):
        resolve({**go.environ, "KUBEBUILDER_ASSETS": str(assets)}, programs=SOME, reporter=quiet())


def test_what_was_built_is_found_again(go: FakeGo) -> None:
    """The second time nothing is built, and no reporter is needed."""
    resolve(go.environ, programs=SOME, reporter=quiet())

    assert set(sources(resolve(go.environ, programs=SOME)).values()) == {Source.CACHE}
    assert len(go.calls("build")) == 3


def test_an_interrupted_run_keeps_what_it_finished(go: FakeGo) -> None:
    """Programs that were built before the failure are in the cache."""
    resolve(go.environ, programs=[ETCD], reporter=quiet())
    go.fail("build", "no")
    with pytest.raises(BuildError):
        resolve(go.environ, programs=SOME, reporter=quiet())

    assert sources(resolve(go.environ, programs=[ETCD])) == {"etcd": Source.CACHE}


def test_nothing_is_built_behind_a_test(go: FakeGo) -> None:
    """Without a reporter a missing program is an error that names the command to run."""
    with pytest.raises(BinaryError, match=r"Not built yet: etcd, kubectl, .*python -m hack\.controlplane build"):
        resolve(go.environ, programs=SOME)
    assert go.calls("build") == []


def test_without_go_and_without_anything_else(tmp_path: Path) -> None:
    """Something must be built and cannot be: the message is about Go."""
    with pytest.raises(ToolchainError, match="Go is missing"):
        resolve({"PATH": str(tmp_path), "HOME": str(tmp_path)}, programs=SOME, reporter=quiet())


def test_setup_envtest_is_asked_when_it_is_there(go: FakeGo, assets: Path) -> None:
    """It provides what it has; the rest is built; what it left in our cache is found without asking it again."""
    store = go.cache / "envtest" / "k8s" / "1.36.2-linux-amd64"
    script = f'#!/bin/sh\necho "$*" >&2\nmkdir -p {store.parent}; cp -r {assets} {store}; echo {store}\n'
    go.install("setup-envtest", script)

    found = resolve(go.environ, programs=SOME, reporter=quiet())

    assert found.path(ETCD) == store / "etcd"
    assert sources(found) == {
        "etcd": Source.ENVTEST,
        "kubectl": Source.ENVTEST,
        "kube-controller-manager": Source.BUILT,
    }
    go.install("setup-envtest", "#!/bin/sh\nexit 1\n")
    assert sources(resolve(go.environ, programs=[ETCD])) == {"etcd": Source.ENVTEST}


def test_setup_envtest_without_network_is_no_end(go: FakeGo) -> None:
    """When it cannot reach its store the programs are built, and a line says why."""
    go.install("setup-envtest", "#!/bin/sh\necho 'unable to fetch index' >&2; exit 2\n")
    stream = io.StringIO()

    found = resolve(go.environ, programs=[ETCD], reporter=PlainReporter(stream))

    assert sources(found) == {"etcd": Source.BUILT}
    assert "unable to fetch index); building instead" in stream.getvalue()


def test_a_set_knows_what_it_lacks(go: FakeGo) -> None:
    """Asking for a program that was not resolved names it."""
    found = resolve(go.environ, programs=[ETCD], reporter=quiet())

    with pytest.raises(BinaryError, match="clusterctl was not resolved"):
        found.path(CLUSTERCTL)
