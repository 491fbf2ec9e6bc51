"""The programs of a control plane, and what pins each of them.

Versions are not repeated here: they are read from the go.mod of the tools module, which is what really gets built.
"""

from __future__ import annotations

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
    """One binary of the control plane.

    Attributes:
        name: file name, as its own project calls it.
        tools: directory below `hack/tools` whose go.mod pins it.
        package: import path of its main package.
        module: Go module that holds the package; its version is the program's version.
        version_packages: Go packages whose version variables the linker sets; without them Kubernetes reports v0.0.0
            and Cluster API refuses to name its release.
        cpu_seconds: CPU seconds of a cold build in the order of `PROGRAMS` (packages shared with an earlier program
            count there); measured on x86-64 with Go 1.26. Only for the expectation that is shown.
        size_mb: size of the binary in MB, for the check of disk space.
    """

    name: str
    tools: str
    package: str
    module: str
    version_packages: tuple[str, ...]
    cpu_seconds: int
    size_mb: int

    @property
    def version(self) -> str:
        """The pinned version, with its `v`."""
        return pinned_version(TOOLS / self.tools / "go.mod", self.module)

    @property
    def environment_variable(self) -> str:
        """The variable by which a person gives the path of this program, such as `CAPOX_BIN_KUBE_APISERVER`."""
        return "CAPOX_BIN_" + self.name.upper().replace("-", "_")

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
        return " ".join(flags)


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
    return Program(
        name=name,
        tools="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        module="k8s.io/kubernetes",
        version_packages=_KUBERNETES_VERSION_PACKAGES,
        cpu_seconds=cpu_seconds,
        size_mb=size_mb,
    )


def _cluster_api(name: str, package: str, cpu_seconds: int, size_mb: int) -> Program:
    return Program(
        name=name,
        tools="cluster-api",
        package=f"sigs.k8s.io/cluster-api/{package}",
        module="sigs.k8s.io/cluster-api",
        version_packages=_CLUSTER_API_VERSION_PACKAGES,
        cpu_seconds=cpu_seconds,
        size_mb=size_mb,
    )


ETCD: Final = Program(
    name="etcd",
    tools="etcd",
    package="go.etcd.io/etcd/server/v3",
    module="go.etcd.io/etcd/server/v3",
    version_packages=(),
    cpu_seconds=79,
    size_mb=27,
)
KUBE_APISERVER: Final = _kubernetes("kube-apiserver", 650, 105)
KUBE_CONTROLLER_MANAGER: Final = _kubernetes("kube-controller-manager", 160, 96)
KUBECTL: Final = _kubernetes("kubectl", 60, 60)
CAPI_CORE: Final = _cluster_api("capi-core", "core", 315, 63)
CAPI_KUBEADM_BOOTSTRAP: Final = _cluster_api("capi-kubeadm-bootstrap", "bootstrap/kubeadm", 14, 58)
CAPI_KUBEADM_CONTROL_PLANE: Final = _cluster_api("capi-kubeadm-control-plane", "controlplane/kubeadm", 23, 64)
CLUSTERCTL: Final = _cluster_api("clusterctl", "cmd/clusterctl", 26, 35)
CAPD: Final = Program(
    name="capd",
    tools="cluster-api-test",
    package="sigs.k8s.io/cluster-api/test/infrastructure/docker",
    module="sigs.k8s.io/cluster-api/test",
    version_packages=_CLUSTER_API_VERSION_PACKAGES,
    cpu_seconds=129,
    size_mb=60,
)
"""Cluster API's provider for development. Not in `PROGRAMS`: only `make bench` needs it, for its in-memory backend."""

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
"""Every program, in the order of building: the largest of a module first, the others find its packages compiled."""

ENVTEST_PROGRAMS: Final = frozenset({ETCD.name, KUBE_APISERVER.name, KUBECTL.name})
"""What a `KUBEBUILDER_ASSETS` directory and `setup-envtest` hold."""
