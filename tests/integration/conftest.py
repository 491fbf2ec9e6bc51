"""The control plane that integration tests share, and where its logs are when one of them fails.

- `control_plane`: one management cluster for the whole run; starting it takes about ten seconds, on a loaded machine a
  minute, and the first test that asks for it pays.
- `own_kinds`: the same, with this provider's CRDs served.
- `namespace`: a namespace of the test's own.
- `binaries`: the programs, for tests that start a control plane of their own.
"""

from __future__ import annotations

import functools
import http.client
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capox.api.v1alpha1 import API_VERSION
from hack.controlplane import components
from hack.controlplane.binaries import Binaries, resolve
from hack.controlplane.capi import ManagementCluster
from hack.controlplane.errors import RequestError
from hack.controlplane.plane import ControlPlane
from tests.integration.waiting import await_established, eventually
from tests.unit.api.crd_values import MACHINE_SPEC, thing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CRDS = Path(__file__).resolve().parents[2] / "crds"
ADMISSION = CRDS.parent / "config" / "admission"

TEST_SECONDS = 300
"""Limit of an integration test that sets none of its own: the start of the shared control plane counts as part of the
first test, and every wait inside has a tighter bound."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and give it its time limit."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with every failure where the logs of the control planes are that the test used."""
    report = yield
    if report.failed:
        used = {value for value in getattr(item, "funcargs", {}).values() if isinstance(value, ControlPlane)}
        for plane in used:
            logs = "\n".join(str(path) for path in sorted(plane.logs.glob("*.log")))
            report.sections.append((f"Logs of {type(plane).__name__} {plane.server}", logs))
    return report


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """Every program. Nothing is built here: `make test-integration` has done so, where its progress can be seen."""
    return resolve(os.environ)


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementCluster]:
    """A management cluster for the whole run. Logs and certificates stay behind in pytest's temporary directory."""
    directory = tmp_path_factory.mktemp("controlplane")
    plane = ManagementCluster(binaries, components.ensure(os.environ, binaries, None), directory=directory)
    with plane:
        yield plane
    shutil.rmtree(directory / "etcd")


@pytest.fixture(scope="session")
def own_kinds(control_plane: ManagementCluster) -> ManagementCluster:
    """The shared control plane, serving the CRDs of this tree, with the policies that go with them in force.

    The policies too, and from the start: a test that installs the provider brings them, and whether another test meets
    them must not hang on the order of the two.
    """
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CRDS))
    await_established(control_plane)
    control_plane.kubectl("apply", "--server-side", "-k", str(ADMISSION))
    for kind in ("OxideMachine", "OxideMachineTemplate"):
        path = f"/apis/{API_VERSION}/namespaces/default/{kind.lower()}s"
        control_plane.client.post(path, thing(kind, MACHINE_SPEC, "policies") | {"metadata": {"name": "policies"}})
        eventually(
            f"a policy refuses changes of an {kind}",
            functools.partial(_is_change_refused, control_plane, kind, f"{path}/policies"),
            within_seconds=60,
        )
        control_plane.client.request("DELETE", f"{path}/policies")
    return control_plane


def _is_change_refused(plane: ControlPlane, kind: str, path: str) -> bool:
    """Whether the number of CPUs of a stored object, or of what is made from it, can be changed no more."""
    change: dict[str, Any] = {"nCPUs": MACHINE_SPEC["nCPUs"] + 1}
    spec = change if kind == "OxideMachine" else {"template": {"spec": change}}
    try:
        plane.client.request("PATCH", f"{path}?dryRun=All", {"spec": spec}, content_type="application/merge-patch+json")
    except RequestError as error:
        return error.status == http.client.UNPROCESSABLE_ENTITY
    return False


@pytest.fixture
def namespace(control_plane: ManagementCluster) -> Iterator[str]:
    """A namespace of the test's own. Its deletion is begun and not waited for: nobody comes here again."""
    name = f"test-{secrets.token_hex(4)}"
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    control_plane.client.post("/api/v1/namespaces", manifest)
    yield name
    control_plane.client.request("DELETE", f"/api/v1/namespaces/{name}")
