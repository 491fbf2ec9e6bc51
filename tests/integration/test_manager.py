"""Manager and watches against a real apiserver: rights, kinds that come late, and an apiserver that is away."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from capox.kube.client import KubeClient
from capox.kube.kind import Kind
from capox.kube.kopf_source import KopfSource
from capox.kube.manager import Manager
from capox.kube.metrics import QueueMetrics, Registry, WatchMetrics
from capox.kube.objects import Resource
from capox.kube.watch import Dispatcher, Wakeup, Watch, WatchEvent
from capox.kube.workqueue import DONE, Request, Result, Workqueue
from hack.controlplane.plane import ControlPlane
from tests.integration.relay import Relay

GROUP = "manager.capox.test"


class Thing(Resource):
    """An object of a kind that only these tests have."""


class Late(Resource):
    """As Thing, of a kind that comes late."""


THINGS = Kind(Thing, GROUP, "v1", "things")
LATES = Kind(Late, GROUP, "v1", "lates")


def crd(kind: Kind[Any]) -> dict[str, Any]:
    """Give the CRD of a kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def serve(plane: ControlPlane, kind: Kind[Any]) -> None:
    """Have a kind served."""
    plane.client.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}", crd(kind))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{kind}")


class Scene:
    """A manager over a real API, whose passes are only noted.

    Attributes:
        woken: The keys that were looked at, in order.
    """

    def __init__(self, client: KubeClient, kinds: Sequence[Kind[Any]], namespace: str | None) -> None:
        registry = Registry()
        self.woken: list[str] = []
        queue = Workqueue(
            "thing", self._reconcile, concurrency=2, randomness=random.Random(0), metrics=QueueMetrics(registry)
        )
        metrics = WatchMetrics(registry)
        self.manager = Manager(
            source=KopfSource(client, kinds, namespace),
            lister=client,
            dispatcher=Dispatcher([Watch(kind, self._map, "thing") for kind in kinds], {"thing": queue}, metrics),
            queues={"thing": queue},
            namespace=namespace,
            sync_period_seconds=600.0,
            randomness=random.Random(0),
            metrics=metrics,
            grace_seconds=1.0,
        )
        self.stop = asyncio.Event()

    async def until(self, state: Callable[[], bool], within_seconds: float = 60.0) -> None:
        """Wait for a state."""
        for _ in range(round(within_seconds / 0.05)):
            if state():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"not within {within_seconds:g} s; looked at were {self.woken[-10:]}")

    async def until_woken(self, name: str, within_seconds: float = 60.0) -> None:
        """Wait until a key is looked at."""
        await self.until(lambda: name in self.woken, within_seconds)

    async def _reconcile(self, request: Request) -> Result:
        self.woken.append(request.name)
        return DONE

    @staticmethod
    def _map(event: WatchEvent) -> Iterable[Wakeup]:
        metadata = event.document["metadata"]
        yield "thing", Request(metadata["namespace"], metadata["name"])


@contextlib.asynccontextmanager
async def running(client: KubeClient, kinds: Sequence[Kind[Any]], namespace: str | None) -> AsyncIterator[Scene]:
    """Run a manager, and ask it to stop in the end."""
    scene = Scene(client, kinds, namespace)
    task = asyncio.create_task(scene.manager.run(scene.stop))
    try:
        yield scene
    finally:
        scene.stop.set()
        await asyncio.wait_for(task, 30)


class Things:
    """What somebody else does with objects, by another client.

    Args:
        plane: Where they are.
        namespace: Their namespace.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._client = plane.client
        self._namespace = namespace

    def make(self, kind: Kind[Any], name: str) -> None:
        """Make an object."""
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}}
        self._client.post(kind.path(self._namespace), document)

    def change(self, kind: Kind[Any], name: str, value: str) -> None:
        """Change an object."""
        merge = "application/merge-patch+json"
        self._client.request("PATCH", kind.path(self._namespace, name), {"spec": {"value": value}}, content_type=merge)

    def delete(self, kind: Kind[Any], name: str) -> None:
        """Delete an object."""
        self._client.request("DELETE", kind.path(self._namespace, name))


@pytest.fixture
def things(control_plane: ControlPlane, namespace: str) -> Things:
    """Somebody else, in the test's namespace."""
    serve(control_plane, THINGS)
    return Things(control_plane, namespace)


async def test_rights_to_list_and_watch_the_kinds_are_enough(
    control_plane: ControlPlane, namespace: str, things: Things, tmp_path: Path
) -> None:
    """Under a ServiceAccount that may read nothing else, in one namespace: neither CRDs nor namespaces (L-19)."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [GROUP], "resources": ["things"], "verbs": ["list", "watch"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    control_plane.client.post(f"{path}/roles", role)
    control_plane.client.post(f"{path}/rolebindings", binding)
    kubeconfig = tmp_path / "kubeconfig"
    token = control_plane.kubectl("create", "token", "reader", "-n", namespace).strip()
    write_kubeconfig(kubeconfig, control_plane.server, control_plane.pki.directory / "ca.crt", token)

    things.make(THINGS, "before")
    async with await KubeClient.login(kubeconfig) as client, running(client, [THINGS], namespace) as scene:
        await scene.until_woken("before")
        await scene.until(lambda: scene.manager.missing == ())
        things.make(THINGS, "after")
        await scene.until_woken("after")
        scene.woken.clear()
        things.change(THINGS, "before", "new")
        await scene.until_woken("before")
        scene.woken.clear()
        things.delete(THINGS, "before")
        await scene.until_woken("before")


async def test_a_kind_that_comes_late_is_watched(control_plane: ControlPlane, namespace: str, things: Things) -> None:
    """The other kinds are watched meanwhile (K-37); and a kind that goes and comes back is watched again."""
    login = await KubeClient.login(control_plane.kubeconfig)
    async with login as client, running(client, [THINGS, LATES], namespace) as scene:
        things.make(THINGS, "early")
        await scene.until_woken("early")
        for round_ in ("first", "second"):
            serve(control_plane, LATES)
            things.make(LATES, f"late-{round_}")
            await scene.until_woken(f"late-{round_}")
            await scene.until(lambda: scene.manager.missing == ())
            control_plane.kubectl("delete", "crd", str(LATES), "--wait")
        things.make(THINGS, "still")
        await scene.until_woken("still")


async def survive_outage(plane: ControlPlane, namespace: str, directory: Path, *, is_silent: bool) -> None:
    """One manager's story; two of them run side by side, since both mostly wait."""
    things = Things(plane, namespace)
    trouble = "silent" if is_silent else "refusing"
    kubeconfig = directory / trouble
    async with Relay(plane.port) as relay:
        kubeconfig.write_text(plane.kubeconfig.read_text().replace(plane.server, relay.server))
        async with await KubeClient.login(kubeconfig) as client, running(client, [THINGS], namespace) as scene:
            things.make(THINGS, f"goes-{trouble}")
            await scene.until_woken(f"goes-{trouble}")
            await scene.until(lambda: scene.manager.missing == ())
            await relay.begin_outage(is_silent=is_silent)
            things.delete(THINGS, f"goes-{trouble}")
            things.make(THINGS, f"meanwhile-{trouble}")
            await asyncio.sleep(85)
            scene.woken.clear()
            await relay.end_outage()
            await scene.until_woken(f"goes-{trouble}", 120)
            await scene.until_woken(f"meanwhile-{trouble}", 120)
            assert scene.manager.missing == ()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("things")
async def test_an_apiserver_that_is_away_for_long_is_survived(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """For longer than all of kopf's own attempts (K-30), refusing connections or swallowing them.

    What has changed meanwhile is seen, and no watch was given up.
    """
    async with asyncio.TaskGroup() as group:
        for is_silent in (False, True):
            group.create_task(survive_outage(control_plane, namespace, tmp_path, is_silent=is_silent))


def write_kubeconfig(path: Path, server: str, authority: Path, token: str) -> None:
    """Write a kubeconfig that logs in by a token."""
    path.touch(mode=0o600)
    path.write_text(
        f"""apiVersion: v1
kind: Config
current-context: it
contexts: [{{name: it, context: {{cluster: it, user: it}}}}]
clusters: [{{name: it, cluster: {{server: "{server}", certificate-authority: "{authority}"}}}}]
users: [{{name: it, user: {{token: "{token}"}}}}]
"""
    )
