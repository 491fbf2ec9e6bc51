"""Versions come from the tools modules, and reach the binaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hack.controlplane.paths import TOOLS
from hack.controlplane.programs import (
    CAPI_CORE,
    KUBE_APISERVER,
    KUBERNETES_PROGRAMS,
    MACHINE_PROGRAMS,
    PAUSE,
    PROGRAMS,
    Program,
    pinned_version,
)

if TYPE_CHECKING:
    from pathlib import Path


EVERY_PROGRAM = sorted(
    {*PROGRAMS, *MACHINE_PROGRAMS, *(program.pinned_by("kubernetes-1.35") for program in KUBERNETES_PROGRAMS)}
    - {PAUSE},
    key=lambda program: (program.name, program.tools),
)
"""Every program that comes from a module of somebody else's."""


@pytest.mark.parametrize("program", EVERY_PROGRAM, ids=lambda program: f"{program.name} of {program.tools}")
def test_every_program_is_a_tool_of_its_module(program: Program) -> None:
    """The go.mod pins the module's version and lists the main package, or `go build` would want to change it."""
    go_mod = (TOOLS / program.tools / "go.mod").read_text()

    assert re.fullmatch(r"v\d+\.\d+\.\d+", program.version)
    # A program that leaves something out has a main package of its own, which `go build` is told by its directory.
    assert bool(program.left_out) != bool(re.search(rf"^(tool)?\s+{re.escape(program.package)}$", go_mod, re.MULTILINE))


@pytest.mark.parametrize("tools", ["kubernetes", "kubernetes-1.35"])
def test_kubernetes_modules_have_the_version_of_kubernetes(tools: str) -> None:
    """Each staging module is replaced by the published one of the same release."""
    replaced = re.findall(r"=> k8s\.io/\S+ (v\S+)", (TOOLS / tools / "go.mod").read_text())

    assert len(replaced) > 30
    assert set(replaced) == {KUBE_APISERVER.pinned_by(tools).version.replace("v1.", "v0.")}


def test_linker_flags_name_the_version() -> None:
    """Both of Kubernetes' version packages are told."""
    flags = KUBE_APISERVER.linker_flags

    assert f"-X k8s.io/component-base/version.gitVersion={KUBE_APISERVER.version}" in flags
    assert f"-X k8s.io/client-go/pkg/version.gitVersion={KUBE_APISERVER.version}" in flags


def test_the_variable_of_a_program() -> None:
    """Upper case, with underscores."""
    assert CAPI_CORE.environment_variable == "CAPOX_BIN_CAPI_CORE"


def test_a_module_that_is_not_required_is_an_error(tmp_path: Path) -> None:
    """A tools module that lost a requirement is noticed by name."""
    go_mod = tmp_path / "go.mod"
    go_mod.write_text("module x\n\nrequire example.org/a v1.2.3\n")

    assert pinned_version(go_mod, "example.org/a") == "v1.2.3"
    with pytest.raises(LookupError, match=r"does not require example\.org/b"):
        pinned_version(go_mod, "example.org/b")
