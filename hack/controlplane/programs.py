"""The programs of a control plane and of the machines of a cluster, and what pins each of them.

Versions are not repeated here: they are read from the go.mod of the tools module, which is what really gets built.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from hack.controlplane.paths import TOOLS

if TYPE_CHECKING:
    from pathlib import Path

_NO_COMMIT: Final = "0" * 40
_BUILD_DATE: Final = "2026-01-01T00:00:00Z"
"""Builds from module sources know neither commit nor date; fixed values keep them reproducible."""


@dataclass(frozen=True)
class Program:
    """One binary.

    Attributes:
        name: file name, as its own project calls it.
        tools: directory below `hack/tools` whose go.mod pins it.
        package: import path of its main package.
        module: Go module that holds the package; its version is the program's version. Empty: the tools module itself.
        version_packages: Go packages whose version variables the linker sets; without them Kubernetes reports v0.0.0
            and Cluster API refuses to name its release.
        cpu_seconds: CPU seconds of a cold build in the order of `PROGRAMS` (packages shared with an earlier program
            count there); measured on x86-64 with Go 1.26. Only for the expectation that is shown.
        size_mb: size of the binary in MB, for the check of disk space.
        version_variable: a Go variable that the linker sets to the version, for programs without such packages.
        left_out: packages that the main package imports and that are left out of the program, because their modules
            cannot be had or need a C compiler.
        linked_version: a version that the linker writes instead of the pinned one.
        is_variant: whether there is another program of that name, which is the one that others distribute too.
    """

    name: str
    tools: str
    package: str
    module: str
    version_packages: tuple[str, ...]
    cpu_seconds: int
    size_mb: int
    version_variable: str = ""
    left_out: tuple[str, ...] = ()
    linked_version: str | None = None
    is_variant: bool = False

    @property
    def version(self) -> str:
        """The version that the program reports, with its `v`."""
        return self.linked_version or self.pinned_version

    @property
    def pinned_version(self) -> str:
        """The version of the code, with its `v`."""
        return pinned_version(TOOLS / self.tools / "go.mod", self.module)

    @property
    def environment_variable(self) -> str:
        """The variable by which a person gives the path of this program, such as `CAPOX_BIN_KUBE_APISERVER`.

        A variant has one of its own, such as `CAPOX_BIN_KUBELET_V1_36_4_RELINKED`.
        """
        named = f"{self.name}_{self.version}" if self.is_variant else self.name
        return "CAPOX_BIN_" + re.sub(r"\W", "_", named.upper())

    @property
    def linker_flags(self) -> str:
        """Value of `go build -ldflags`: no symbol tables, and the version variables."""
        version = self.version
        minor = version.removeprefix("v").split(".")[1]
        values = {
            "gitVersion": version,
            "gitMajor": version.removeprefix("v").split(".")[0],
            "gitMinor": minor,
            "gitTreeState": "clean",
            "gitCommit": _NO_COMMIT,
            "buildDate": _BUILD_DATE,
        }
        flags = ["-s", "-w"]
        for package in self.version_packages:
            flags += [f"-X {package}.{variable}={value}" for variable, value in values.items()]
        if self.version_variable:
            flags.append(f"-X {self.version_variable}={version}")
        return " ".join(flags)

    def relinked(self, version: str) -> Program:
        """The same code that reports another version. Only the linker runs for it, nothing is compiled."""
        return dataclasses.replace(self, linked_version=version, is_variant=True)

    def pinned_by(self, tools: str) -> Program:
        """The same program of another version, which another tools module pins."""
        return dataclasses.replace(self, tools=tools, is_variant=True)


@cache
def pinned_version(go_mod: Path, module: str) -> str:
    """The version that a go.mod requires of a module.

    Args:
        go_mod: path of the go.mod.
        module: module path, as it stands in a `require`.

    Raises:
        LookupError: the go.mod has no such line; the tools module and `PROGRAMS` do not fit together.
    """
    found = re.search(rf"^(?:require)?\s+{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if not found:
        raise LookupError(f"{go_mod} does not require {module}")
    return found[1]


_KUBERNETES_VERSION_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_CLUSTER_API_VERSION_PACKAGES: Final = ("sigs.k8s.io/cluster-api/version",)


def _kubernetes(name: str, cpu_seconds: int, size_mb: int) -> Program:
    module = "k8s.io/kubernetes"
    versions = _KUBERNETES_VERSION_PACKAGES
    return Program(name, "kubernetes", f"{module}/cmd/{name}", module, versions, cpu_seconds, size_mb)


def _cluster_api(name: str, package: str, cpu_seconds: int, size_mb: int) -> Program:
    module = "sigs.k8s.io/cluster-api"
    versions = _CLUSTER_API_VERSION_PACKAGES
    return Program(name, "cluster-api", f"{module}/{package}", module, versions, cpu_seconds, size_mb)


def _other(name: str, tools: str, module: str, cpu_seconds: int, size_mb: int, *, command: str = "") -> Program:
    """A program whose main package is its module's root, or is named by a path below it."""
    return Program(name, tools, module + command, module, (), cpu_seconds, size_mb)


ETCD: Final = _other("etcd", "etcd", "go.etcd.io/etcd/server/v3", 79, 27)
KUBE_APISERVER: Final = _kubernetes("kube-apiserver", 650, 105)
KUBE_CONTROLLER_MANAGER: Final = _kubernetes("kube-controller-manager", 160, 96)
KUBECTL: Final = _kubernetes("kubectl", 60, 60)
KUBELET: Final = _kubernetes("kubelet", 60, 60)
KUBEADM: Final = _kubernetes("kubeadm", 25, 50)
KUBE_SCHEDULER: Final = _kubernetes("kube-scheduler", 10, 62)
KUBE_PROXY: Final = _kubernetes("kube-proxy", 15, 46)
CAPI_CORE: Final = _cluster_api("capi-core", "core", 315, 63)
CAPI_KUBEADM_BOOTSTRAP: Final = _cluster_api("capi-kubeadm-bootstrap", "bootstrap/kubeadm", 14, 58)
CAPI_KUBEADM_CONTROL_PLANE: Final = _cluster_api("capi-kubeadm-control-plane", "controlplane/kubeadm", 23, 64)
CLUSTERCTL: Final = _cluster_api("clusterctl", "cmd/clusterctl", 26, 35)
CAPD: Final = dataclasses.replace(
    _other("capd", "cluster-api-test", "sigs.k8s.io/cluster-api/test", 129, 60, command="/infrastructure/docker"),
    version_packages=_CLUSTER_API_VERSION_PACKAGES,
)
"""Cluster API's provider for development. Not in `PROGRAMS`: only `make bench` needs it, for its in-memory backend."""
COREDNS: Final = _other("coredns", "coredns", "github.com/coredns/coredns", 300, 60)
FLANNELD: Final = dataclasses.replace(
    _other("flanneld", "flannel", "github.com/flannel-io/flannel", 120, 40),
    version_variable="github.com/flannel-io/flannel/pkg/version.Version",
    left_out=(
        # One cloud's backend: its modules are not published. The other wants a C compiler, and vxlan replaced it.
        "github.com/flannel-io/flannel/pkg/backend/tencentvpc",
        "github.com/flannel-io/flannel/pkg/backend/udp",
    ),
)
PAUSE: Final = Program("pause", "pause", "capox.invalid/hack/tools/pause", "", (), 5, 2, linked_version="v1.0.0")
CRICTL: Final = dataclasses.replace(
    _other("crictl", "cri-tools", "sigs.k8s.io/cri-tools", 60, 40, command="/cmd/crictl"),
    version_variable="sigs.k8s.io/cri-tools/pkg/version.Version",
)

PROGRAMS: Final = (
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBECTL,
    ETCD,
    CAPI_CORE,
    CAPI_KUBEADM_BOOTSTRAP,
    CAPI_KUBEADM_CONTROL_PLANE,
    CLUSTERCTL,
)
"""Every program of a control plane, in the order of building: the largest of a module first, the others find its
packages compiled."""

KUBERNETES_PROGRAMS: Final = (
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBECTL,
    KUBELET,
    KUBEADM,
    KUBE_SCHEDULER,
    KUBE_PROXY,
)
"""What Kubernetes itself puts on the machines of a cluster; all of one version."""

MACHINE_PROGRAMS: Final = (*KUBERNETES_PROGRAMS, ETCD, COREDNS, FLANNELD, CRICTL, PAUSE)
"""What the node image holds. No test of the control plane needs those that are not in `PROGRAMS`."""

ENVTEST_PROGRAMS: Final = frozenset({ETCD.name, KUBE_APISERVER.name, KUBECTL.name})
"""What a `KUBEBUILDER_ASSETS` directory and `setup-envtest` hold."""
