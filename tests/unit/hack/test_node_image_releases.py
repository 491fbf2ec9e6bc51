"""What a node image holds: versions that fit together, and an image for everything that kubeadm asks for."""

from __future__ import annotations

import pytest

from hack.controlplane.programs import KUBE_APISERVER, KUBE_PROXY, KUBECTL, KUBELET, KUBERNETES_PROGRAMS
from hack.nodeimage import releases
from hack.nodeimage.errors import NodeImageError
from hack.nodeimage.releases import Release, container_images, pause_image


def wanted_by(release: Release) -> list[str]:
    """What a kubeadm of this release names."""
    names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"]
    own = [f"registry.example.com/{name}:{release.tag}" for name in names]
    return [
        *own,
        "registry.example.com/coredns/coredns:v1.14.2",
        "registry.example.com/pause:3.10",
        "registry.example.com/etcd:3.6.8-0",
    ]


def test_the_second_version_is_the_next_patch_and_says_that_it_is_relinked() -> None:
    """Semantic versioning orders it after the first, and whoever reads it knows that the code is the same."""
    first, second = releases.standard(), releases.relinked()

    major, minor, patch = first.version.split(".")
    assert second.version == f"{major}.{minor}.{int(patch) + 1}+relinked"
    assert second.tag == f"{major}.{minor}.{int(patch) + 1}_relinked"
    assert f"The code of Kubernetes {first.version} linked as {second.version}" in second.origin


@pytest.mark.parametrize("release", [releases.standard(), releases.relinked(), releases.earlier()], ids=str)
def test_every_program_of_a_release_reports_its_version(release: Release) -> None:
    """A kubelet beside a kubeadm of another version would refuse to join."""
    assert {program.version for program in release.programs} == {release.version}
    assert {program.name for program in release.programs} == {program.name for program in KUBERNETES_PROGRAMS}
    for program in release.programs:
        assert f"gitVersion={release.version}" in program.linker_flags


def test_the_earlier_release_is_of_the_minor_version_before() -> None:
    """Kubernetes allows an upgrade over one minor version, not over two."""
    minors = [int(make().version.split(".")[1]) for make in (releases.earlier, releases.standard)]

    assert minors[1] == minors[0] + 1


def test_a_release_has_a_name_for_the_rack() -> None:
    """Lower-case letters, digits and dashes."""
    assert releases.relinked().name.endswith("-relinked")
    assert releases.relinked().name.replace("-", "").isalnum()
    assert releases.standard().name == f"node-{KUBE_APISERVER.version.replace('.', '-')}"


def test_only_what_others_distribute_is_taken_from_them() -> None:
    """A variant has a variable of its own, so that a given kubectl never becomes that of another version."""
    assert KUBECTL.environment_variable == "CAPOX_BIN_KUBECTL"
    assert KUBECTL.relinked("v1.36.4+relinked").environment_variable == "CAPOX_BIN_KUBECTL_V1_36_4_RELINKED"
    assert KUBELET.pinned_by(releases.EARLIER_TOOLS).is_variant


def test_everything_that_kubeadm_wants_is_there_and_flannel_too() -> None:
    """A machine boots without a registry."""
    release = releases.standard()
    images = container_images(release, wanted_by(release))
    references = [reference for image in images for reference in image.references]

    assert set(wanted_by(release)) < set(references)
    (flannel,) = set(references) - set(wanted_by(release))
    assert flannel.startswith("ghcr.io/flannel-io/flannel:v")
    assert pause_image(wanted_by(release)) == "registry.example.com/pause:3.10"


def test_every_image_holds_the_kube_proxy_of_the_other_version() -> None:
    """During an upgrade the new kube-proxy goes to every machine, also to those that boot the old image."""
    first, second = releases.standard(), releases.relinked()
    for release, other in ((first, second), (second, first)):
        images = container_images(release, wanted_by(release), (other,))
        proxies = {image.references[0]: image for image in images if image.program.name == KUBE_PROXY.name}

        assert set(proxies) == {f"registry.example.com/kube-proxy:{each.tag}" for each in (first, second)}
        for each in (first, second):
            assert proxies[f"registry.example.com/kube-proxy:{each.tag}"].program.version == each.version
        assert all(proxy.on_firewall for proxy in proxies.values())


def test_an_image_that_nobody_has_thought_of_is_named() -> None:
    """A new kubeadm that wants one more image stops the build, not the machines."""
    release = releases.standard()

    with pytest.raises(NodeImageError, match="wants an image kube-novelty"):
        container_images(release, ["registry.example.com/kube-novelty:v1"])


def test_a_kubeadm_of_another_version_is_noticed() -> None:
    """Images under a tag that no kubeadm asks for would be of no use."""
    release = releases.standard()

    with pytest.raises(NodeImageError, match=r"wants registry\.example\.com/kube-proxy:v1\.0\.0, not a tag"):
        container_images(release, ["registry.example.com/kube-proxy:v1.0.0"])
