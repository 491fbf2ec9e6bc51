"""Which programs make the Kubernetes of a node image, and what each of its container images holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hack.controlplane.programs import (
    COREDNS,
    CRICTL,
    ETCD,
    FLANNELD,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_PROXY,
    KUBE_SCHEDULER,
    KUBEADM,
    KUBECTL,
    KUBELET,
    KUBERNETES_PROGRAMS,
    PAUSE,
    Program,
)
from hack.nodeimage.errors import NodeImageError

OTHER_PROGRAMS: Final = (ETCD, COREDNS, FLANNELD, CRICTL, PAUSE)
"""What is on a machine and has versions of its own."""

ON_THE_MACHINE: Final = (KUBELET, KUBEADM, KUBECTL, CRICTL)
"""What is a file of the image; everything else runs in Pods."""

FLANNEL_IMAGE: Final = "ghcr.io/flannel-io/flannel"
"""The public image. The one that is built here has its name: one manifest serves with and without a registry."""

EARLIER_TOOLS: Final = "kubernetes-1.35"
"""The tools module of the minor version before."""

_NEXT_PATCH: Final = 1


def as_tag(version: str) -> str:
    """A version as the tag of an image, where a plus sign cannot stand; kubeadm writes it the same way."""
    return version.replace("+", "_")


@dataclass(frozen=True)
class Release:
    """A version of Kubernetes for machines.

    Attributes:
        version: as Cluster API and kubeadm know it, such as `v1.36.3`.
        programs: Kubernetes' own programs at that version.
        origin: in one sentence for people, what its code is.
    """

    version: str
    programs: tuple[Program, ...]
    origin: str

    @property
    def tag(self) -> str:
        """The version as the tag of an image."""
        return as_tag(self.version)

    @property
    def name(self) -> str:
        """Name of the machine image in a rack: letters, digits and dashes."""
        return "node-" + self.version.replace(".", "-").replace("+", "-")

    def program(self, name: str) -> Program:
        """One of its programs, or one of those that every release shares.

        Raises:
            LookupError: there is none of that name.
        """
        for program in (*self.programs, *OTHER_PROGRAMS):
            if program.name == name:
                return program
        raise LookupError(f"no program {name} is on a machine")


def standard() -> Release:
    """The version that the control plane of the tests has too."""
    version = KUBE_APISERVER.version
    return Release(version, KUBERNETES_PROGRAMS, f"Kubernetes {version} built from its Go modules.")


def relinked() -> Release:
    """The same code under the version of a patch that does not exist, to upgrade to: only the linker runs for it."""
    code = KUBE_APISERVER.version
    major, minor, patch = code.split(".")
    version = f"{major}.{minor}.{int(patch) + _NEXT_PATCH}+relinked"
    programs = tuple(program.relinked(version) for program in KUBERNETES_PROGRAMS)
    return Release(version, programs, f"The code of Kubernetes {code} linked as {version}, for trying upgrades.")


def earlier() -> Release:
    """A release of the minor version before, to upgrade from; all of it is compiled."""
    programs = tuple(program.pinned_by(EARLIER_TOOLS) for program in KUBERNETES_PROGRAMS)
    version = programs[0].version
    return Release(version, programs, f"Kubernetes {version} built from its Go modules.")


def packaged(version: str) -> Release:
    """A release of which nothing is built: the scripts take it from Kubernetes' own packages and its registry."""
    return Release(version, (), f"Kubernetes {version} from its public packages.")


@dataclass(frozen=True)
class ContainerImage:
    """An image FROM scratch with one program.

    Attributes:
        references: its names with tags.
        program: what is in it.
        path: where, without a leading slash.
        has_entrypoint: whether the program is started when a Pod names no command.
        on_firewall: whether it stands on the firewall tools and a shell.
    """

    references: tuple[str, ...]
    program: Program
    path: str
    has_entrypoint: bool = False
    on_firewall: bool = False


def container_images(release: Release, wanted: list[str], others: tuple[Release, ...] = ()) -> list[ContainerImage]:
    """What the machines of a release run in Pods.

    Args:
        release: the release.
        wanted: the references that its kubeadm names, such as `registry.k8s.io/kube-proxy:v1.36.3`.
        others: releases that its machines live beside during an upgrade: every machine gets the new kube-proxy as soon
            as the first one is upgraded.

    Raises:
        NodeImageError: kubeadm wants an image that nobody has thought of, or wants another version.
    """
    images = []
    for reference in wanted:
        name, _, tag = reference.rpartition(":")
        program, path, has_entrypoint = _content_of(release, name.rpartition("/")[2])
        if program in release.programs and tag != release.tag:
            raise NodeImageError(f"kubeadm {release.version} wants {reference}, not a tag {release.tag}")
        on_firewall = program.name == KUBE_PROXY.name
        images.append(ContainerImage((reference,), program, path, has_entrypoint, on_firewall))
    proxies = [image for image in images if image.on_firewall]
    for other in others:
        for proxy in proxies:
            name = proxy.references[0].rpartition(":")[0]
            program = other.program(KUBE_PROXY.name)
            images.append(ContainerImage((f"{name}:{other.tag}",), program, proxy.path, on_firewall=True))
    flannel = f"{FLANNEL_IMAGE}:{FLANNELD.version}"
    images.append(ContainerImage((flannel,), FLANNELD, "opt/bin/flanneld", has_entrypoint=True, on_firewall=True))
    return images


def pause_image(wanted: list[str]) -> str:
    """The reference of the pause image among those that kubeadm names."""
    return next(reference for reference in wanted if "/pause:" in reference)


def _content_of(release: Release, name: str) -> tuple[Program, str, bool]:
    """Program, its path, and whether it is the entry point, by the last part of an image's name."""
    in_usual_place = {
        program.name: program for program in (KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KUBE_PROXY, ETCD)
    }
    if name in in_usual_place:
        return release.program(name), f"usr/local/bin/{name}", False
    if name == COREDNS.name:
        return COREDNS, "coredns", True
    if name == PAUSE.name:
        return PAUSE, "pause", True
    raise NodeImageError(
        f"kubeadm {release.version} wants an image {name}, which is not known here; change hack/nodeimage/releases.py"
    )
