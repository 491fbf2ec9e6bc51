"""A node image is made when something that goes into it has changed, and of nothing else."""

from __future__ import annotations

import dataclasses
import io
import shutil
from pathlib import Path

import pytest
import yaml

from hack.controlplane.programs import KUBERNETES_PROGRAMS, PROGRAMS, Program
from hack.controlplane.progress import PlainReporter
from hack.nodeimage import __main__ as command_line
from hack.nodeimage import debian, last_layer, register, releases
from hack.nodeimage.build import IMAGE_BUILDER, STAGE_LABEL, Recipe, Workshop, images_of_kubeadm
from hack.nodeimage.docker import Docker
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.last_layer import KEY_LABEL
from hack.nodeimage.manager_image import manager_image
from hack.nodeimage.releases import OTHER_PROGRAMS
from tests.unit.hack.dockerfake import FakeDocker

KUBEADM = """#!/bin/sh
[ "$*" = "config images list --kubernetes-version {version}" ] || exit 1
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do
  echo registry.example.com/$name:{tag}
done
printf 'registry.example.com/coredns/coredns:v1\\nregistry.example.com/pause:3\\nregistry.example.com/etcd:3-0\\n'
"""
RELEASES = (releases.standard(), releases.relinked())


class Bench:
    """A workshop with stand-ins for the engine and for every program."""

    def __init__(self, directory: Path) -> None:
        self.docker = FakeDocker(directory / "docker")
        self.docker.has("debian:12", "sha256:debian")
        self.environ = self.docker.environ | {"XDG_CACHE_HOME": str(directory / "cache")}
        programs = directory / "programs"
        programs.mkdir()
        for release in RELEASES:
            for program in (*release.programs, *OTHER_PROGRAMS):
                self._install(program, release, programs)
        self.cache = register.directory(self.environ)
        self._lay_down_manager()

    def _lay_down_manager(self) -> None:
        """Have capox's image lie in the cache, which nobody needs to make for these tests."""
        script = IMAGE_BUILDER / "ccm" / "python.sh"
        docker, reporter = Docker("unix:///nowhere", self.environ), PlainReporter(io.StringIO())
        _, python_id = debian.ensure_root(docker, "debian:12", script, self.cache, reporter, title="Python")
        self.manager = manager_image(python_id, self.cache)
        self.manager.archive.parent.mkdir(parents=True, exist_ok=True)
        self.manager.archive.write_text("capox's image")

    def _install(self, program: Program, release: releases.Release, programs: Path) -> None:
        path = programs / program.environment_variable
        text = KUBEADM.format(version=release.version, tag=release.tag) if program.name == "kubeadm" else path.name
        path.write_text(text)
        path.chmod(0o755)
        self.environ[program.environment_variable] = str(path)

    def workshop(self, base: str | None = "debian:12") -> Workshop:
        """Makes images on a Debian that is given, or on one of its own."""
        docker = Docker("unix:///nowhere", self.environ)
        reporter = PlainReporter(io.StringIO())
        return Workshop(docker, base=base, cache=self.cache, environ=self.environ, reporter=reporter)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A workshop."""
    return Bench(tmp_path)


def test_images_are_made_once(bench: Bench) -> None:
    """The second time nothing is built: a label of the image tells what it was made of."""
    first = bench.workshop().make_from_modules(RELEASES)
    second = bench.workshop().make_from_modules(RELEASES)

    assert [built.is_new for built in first] == [True, True]
    assert [built.is_new for built in second] == [False, False]
    assert [dataclasses.replace(built, is_new=False) for built in first] == second
    # The two with their last layers, and once each the firewall tools and Python.
    assert len(bench.docker.calls("build")) == 6
    assert [built.reference for built in first] == [f"capox/node:{built.release.tag}-{built.key}" for built in first]


def test_nothing_is_compiled_on_a_floor_that_cannot_be_laid(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not root hears so at once, with the way out, and not after a quarter of an hour."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    # Looking for it is what compiling begins with.
    bench.environ["CAPOX_BIN_KUBELET"] = "/nowhere/kubelet"

    with pytest.raises(NodeImageError, match=r"needs root.*make node-image ARGS='--base debian:12'"):
        bench.workshop(base=None).make_from_modules(RELEASES)


def test_the_context_has_the_scripts_and_what_they_install(bench: Bench) -> None:
    """The programs of the machine as files, everything else as archives of container images."""
    bench.workshop().make_from_modules(RELEASES)
    context = bench.docker.context(f"capox/node-bare:{RELEASES[1].tag}")

    assert {path.name for path in (context / "kubernetes").iterdir()} == {"kubelet", "kubeadm", "kubectl", "crictl"}
    assert (context / "kubernetes" / "kubelet").read_text() == "CAPOX_BIN_KUBELET_V1_36_4_RELINKED"
    archives = sorted(path.name.split("-v")[0] for path in (context / "images").iterdir())
    assert archives.count("kube-proxy") == 2
    assert set(archives) == {
        *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"),
        *("coredns", "etcd", "flanneld", "pause"),
    }
    for folder in ("provision", "rack"):
        there = {path.relative_to(context) for path in (context / folder).rglob("*")}
        assert there == {path.relative_to(IMAGE_BUILDER) for path in (IMAGE_BUILDER / folder).rglob("*")}


def test_a_changed_program_makes_its_image_again(bench: Bench) -> None:
    """And leaves the other version's image alone; the one that was replaced is removed."""
    bench.workshop().make_from_modules(RELEASES)
    Path(bench.environ["CAPOX_BIN_KUBELET"]).write_text("another kubelet")

    built = bench.workshop().make_from_modules(RELEASES)

    assert [each.is_new for each in built] == [True, False]
    assert len(bench.docker.calls("image rm")) == 1


def test_the_last_layer_holds_capox(bench: Bench) -> None:
    """Its archive and the script that reads it into the store, on the image of the same tag; every image has it."""
    built = bench.workshop().make_from_modules(RELEASES)

    for each, release in zip(built, RELEASES, strict=True):
        context = bench.docker.context(each.reference)
        assert {path.name for path in context.iterdir()} == {"Dockerfile", "60-images.sh", "images"}
        (archive,) = (context / "images").iterdir()
        assert archive.read_text() == "capox's image"
        assert each.manager == bench.manager.reference
        assert f"BARE=capox/node-bare:{release.tag}" in " ".join(bench.docker.calls("build"))


def test_the_last_layer_is_made_again_alone(bench: Bench) -> None:
    """What was compiled and installed is left alone; the ids follow, and so does what the provider is told."""
    made = [register.describe(built) for built in bench.workshop().make_from_modules(RELEASES)]
    register.write(made, "before:1", bench.environ)
    before = len(bench.docker.calls("build"))
    assert last_layer.refreshed("unix:///nowhere", bench.environ, PlainReporter(io.StringIO())) == made
    assert len(bench.docker.calls("build")) == before
    assert register.manager(bench.environ) == bench.manager.reference

    bench.docker.forget(made[0].reference)
    bench.docker.relabel(f"capox/node-bare:{RELEASES[1].tag}", KEY_LABEL, "of another kubelet")
    refreshed = last_layer.refreshed("unix:///nowhere", bench.environ, PlainReporter(io.StringIO()))

    assert len(bench.docker.calls("build")) == before + len(RELEASES)
    assert refreshed == register.registered(bench.environ)
    assert [new.id == old.id for new, old in zip(refreshed, made, strict=True)] == [True, False]
    # A rack that has been told of the old one goes on booting that.
    assert refreshed[1].reference != made[1].reference
    assert bench.docker.context(made[1].reference).is_dir()


def test_images_of_older_sources_do_not_pile_up(bench: Bench) -> None:
    """The latest ones stay, since several trees may have racks at work."""
    bench.docker.has(f"capox/node-bare:{RELEASES[0].tag}", "sha256:bare")
    references = []
    for number in range(6):
        bench.docker.relabel(f"capox/node-bare:{RELEASES[0].tag}", KEY_LABEL, f"{number}")
        layer = last_layer.LastLayer(
            Docker("unix:///nowhere", bench.environ), bench.cache, PlainReporter(io.StringIO())
        )
        references.append(layer.put(bench.manager, RELEASES[0].tag).reference)

    there = [bench.docker.context(reference).is_dir() for reference in references]
    assert there == [False, False, True, True, True, True]
    assert bench.docker.context(f"capox/node:{RELEASES[0].tag}").is_dir()


def test_an_image_that_cannot_be_refreshed_says_what_to_do(bench: Bench) -> None:
    """It was made before there was a last layer, or the engine is another one."""
    made = [register.describe(built) for built in bench.workshop().make_from_modules(RELEASES[:1])]
    register.write(made, "before:1", bench.environ)
    bench.docker.forget(f"capox/node-bare:{RELEASES[0].tag}")

    with pytest.raises(NodeImageError, match="make node-image"):
        last_layer.refreshed("unix:///nowhere", bench.environ, PlainReporter(io.StringIO()))


def test_nothing_is_refreshed_where_there_is_nothing(bench: Bench) -> None:
    """Whoever boots machines then goes on without them."""
    assert last_layer.refreshed("unix:///nowhere", bench.environ, PlainReporter(io.StringIO())) == []
    assert register.manager(bench.environ) == ""
    assert bench.docker.calls("build --tag capox/node") == []


def test_the_key_follows_everything_that_goes_in(tmp_path: Path) -> None:
    """Scripts and their modes, base, arguments, archives and programs."""
    scripts = tmp_path / "image-builder"
    shutil.copytree(IMAGE_BUILDER, scripts)
    program = tmp_path / "kubelet"
    program.write_text("a kubelet")
    recipe = Recipe(
        RELEASES[0], "debian:12", "sha256:one", {"PAUSE_IMAGE": "pause:1"}, (tmp_path / "a.tar",), {"kubelet": program}
    )
    changes = [
        dataclasses.replace(recipe, base_id="sha256:two"),
        dataclasses.replace(recipe, arguments={"PAUSE_IMAGE": "pause:2"}),
        dataclasses.replace(recipe, archives=(tmp_path / "b.tar",)),
        dataclasses.replace(recipe, binaries={}),
    ]
    keys = [each.key(scripts) for each in (recipe, *changes)]
    (scripts / "packer" / "node.pkr.hcl").write_text("of no use here")
    assert recipe.key(scripts) == keys[0]
    (scripts / "rack" / "install.sh").chmod(0o644)
    keys.append(recipe.key(scripts))
    (scripts / "provision" / "20-kernel.sh").write_text("another script")
    keys.append(recipe.key(scripts))

    assert len(set(keys)) == len(keys)


def test_old_stages_do_not_pile_up(bench: Bench) -> None:
    """They carry the label by which they are removed."""
    bench.workshop().make_from_modules(RELEASES[:1])

    (call,) = bench.docker.calls("image prune")
    assert f"--filter label={STAGE_LABEL}" in call
    assert f"LABEL {STAGE_LABEL}=" in (IMAGE_BUILDER / "rack" / "Dockerfile").read_text()


def test_nothing_is_built_for_an_image_from_packages(bench: Bench) -> None:
    """The scripts are told where the packages are, and fetch the images of kubeadm."""
    url = "https://packages.example.com/v1.35/deb/"
    built = bench.workshop().make_from_packages(releases.packaged("v1.35.4"), url)

    (call,) = (each for each in bench.docker.calls("build") if "capox/node-bare" in each and "--file" in each)
    assert f"KUBERNETES_PACKAGES_URL={url}" in call
    assert "CONTAINER_IMAGES=pull" in call
    assert "KUBERNETES_VERSION=v1.35.4" in call
    assert not any((bench.docker.context("capox/node-bare:v1.35.4") / "images").iterdir())
    assert (built.reference, built.is_new) == (f"capox/node:v1.35.4-{built.key}", True)


def test_a_failed_build_is_quoted(bench: Bench) -> None:
    """The message has Docker's last words and says where the rest is."""
    bench.docker.fail("E: Unable to locate package containerd\n")

    with pytest.raises(NodeImageError, match=r"(?s)exit 7.*\.log.*Unable to locate package containerd"):
        bench.workshop().make_from_packages(releases.packaged("v1.35.4"), "https://packages.example.com/")


def test_a_kubeadm_that_fails_is_quoted(tmp_path: Path) -> None:
    """The message has its words."""
    kubeadm = tmp_path / "kubeadm"
    kubeadm.write_text("#!/bin/sh\necho 'could not parse' >&2; exit 1\n")
    kubeadm.chmod(0o755)

    with pytest.raises(NodeImageError, match="could not parse"):
        images_of_kubeadm(kubeadm, "v1")


def test_a_rack_is_told_of_an_image(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Id, name, operating system and its version; the id follows the content."""
    made = [register.describe(built) for built in bench.workshop().make_from_modules(RELEASES)]
    register.write(made, "m:1", bench.environ)
    first = register.registered(bench.environ)
    Path(bench.environ["CAPOX_BIN_KUBELET"]).write_text("another kubelet")
    made = [register.describe(built) for built in bench.workshop().make_from_modules(RELEASES)]
    register.write(made, "m:1", bench.environ)

    assert command_line.main(["list"], bench.environ) == 0
    listed = capsys.readouterr().out
    assert "--ccm-image: m:1\n" in listed
    images = yaml.safe_load(listed)["images"]
    assert [(image["name"], image["os"], image["version"]) for image in images] == [
        (release.name, "debian", "12") for release in RELEASES
    ]
    assert images[0]["size"] == 3 << 30
    assert images[0]["guest"].startswith(f"capox/node:{RELEASES[0].tag}-")
    assert images[0]["id"] != first[0].id
    assert images[1]["id"] == first[1].id


def test_only_the_images_that_were_made_last_are_offered(bench: Bench) -> None:
    """Those of another pair lack the kube-proxy of these."""
    made = [register.describe(built) for built in bench.workshop().make_from_modules(RELEASES)]
    register.write(made, "m:1", bench.environ)
    register.write(made[:1], "m:1", bench.environ)

    assert register.registered(bench.environ) == made[:1]


def test_without_an_image_the_list_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code tells scripts."""
    assert command_line.main(["list"], {"HOME": str(tmp_path)}) == 3
    assert "make node-image" in capsys.readouterr().err


def test_the_tests_of_the_control_plane_do_not_need_the_machines_programs() -> None:
    """`make test` builds neither kubelet nor coredns."""
    only_on_machines = {program.name for program in KUBERNETES_PROGRAMS} - {program.name for program in PROGRAMS}

    assert only_on_machines == {"kubelet", "kubeadm", "kube-scheduler", "kube-proxy"}
