"""The stories of Nodes and Services that hold for a Kubernetes API, whichever one it is.

A subclass gives the fixtures `api` and `namespace`, as in `tests.contract.kube.stories`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from capox.ccm.kinds import NODES, SERVICES
from capox.kube import errors
from capox.kube.client import KubeAPI
from capox.kube.core_objects import Node

PROVIDER_ID = "oxide://0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c01"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


def service(namespace: str, name: str, **metadata: Any) -> dict[str, Any]:
    """Give the document of a Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    }


async def undisturbed(api: KubeAPI, name: str, act: Callable[[Node], Awaitable[None]]) -> None:
    """Do something to a Node as it is now; a real cluster's own controllers write Nodes too, then it is read again."""
    for _ in range(50):
        with contextlib.suppress(errors.Conflict):
            await act(await api.get(NODES, "", name))
            return
    raise AssertionError(f"Node {name} is written all the time")


class CoreStories:
    """What the cloud controller manager relies on."""

    @pytest.fixture
    async def node(self, api: KubeAPI, namespace: str) -> AsyncIterator[Node]:
        """A Node as a kubelet registers it."""
        name = f"{namespace}-node"
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"taints": [{"key": "example.com/a", "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "Hostname", "address": name}]},
        }
        yield await api.create(NODES, "", document)
        with contextlib.suppress(errors.NotFound):
            await api.delete(NODES, "", name)

    async def test_a_node_has_no_namespace(self, api: KubeAPI, node: Node) -> None:
        """It is made with its status, and read and listed without a namespace."""
        name = node.metadata.name
        assert node.metadata.namespace == ""
        assert node.addresses_of("Hostname") == (name,)
        assert (await api.get(NODES, "", name)).metadata.uid == node.metadata.uid
        assert name in [each.metadata.name for each in await api.list(NODES, None)]

    async def test_the_status_of_a_node_is_apart(self, api: KubeAPI, node: Node) -> None:
        """N7: a list in the status is replaced whole, in its order; a write of the Node itself leaves the status."""
        name = node.metadata.name
        addresses = [{"type": "InternalIP", "address": text} for text in ("fd00::1", "10.0.0.1")]
        patched = await api.patch(NODES, "", name, {"status": {"addresses": addresses}}, subresource="status")
        assert patched.addresses_of("InternalIP") == ("fd00::1", "10.0.0.1")
        assert patched.addresses_of("Hostname") == ()

        again = await api.patch(NODES, "", name, {"status": {"addresses": []}, "metadata": {"labels": {"a": "b"}}})
        assert again.addresses_of("InternalIP") == ("fd00::1", "10.0.0.1")
        assert again.metadata.labels["a"] == "b"

    async def test_a_provider_id_is_set_once(self, api: KubeAPI, node: Node) -> None:
        """N2: from nothing to something, and then it stays."""
        name = node.metadata.name
        assert node.spec.provider_id == ""
        patched = await api.patch(NODES, "", name, {"spec": {"providerID": PROVIDER_ID}})
        assert patched.spec.provider_id == PROVIDER_ID
        with pytest.raises(errors.Invalid):
            await api.patch(NODES, "", name, {"spec": {"providerID": f"{PROVIDER_ID[:-1]}2"}})

    async def test_taints_are_written_as_they_were_read(self, api: KubeAPI, node: Node) -> None:
        """N1, L8: fields that are not known here stay; a write that is based on an older Node is refused."""
        name = node.metadata.name
        late = {"key": "example.com/b", "effect": "NoExecute", "timeAdded": "2026-09-01T00:00:00Z"}
        patched = await api.patch(NODES, "", name, {"spec": {"taints": [late]}})
        assert [taint.dump() for taint in patched.spec.taints] == [late]

        version = {"metadata": {"resourceVersion": node.metadata.resource_version}}
        with pytest.raises(errors.Conflict):
            await api.patch(NODES, "", name, version | {"spec": {"taints": None}})

        async def untaint(present: Node) -> None:
            """Take the taint off."""
            version = {"metadata": {"resourceVersion": present.metadata.resource_version}}
            written = await api.patch(NODES, "", name, version | {"spec": {"taints": None}})
            assert written.spec.taints == ()

        await undisturbed(api, name, untaint)

    async def test_a_node_is_deleted_as_it_was_read(self, api: KubeAPI, node: Node) -> None:
        """L4: with another uid or version nothing is deleted."""
        metadata = node.metadata
        await api.patch(NODES, "", metadata.name, {"metadata": {"labels": {"a": "b"}}})
        present = await api.get(NODES, "", metadata.name)
        for preconditions in (
            {"uid": metadata.uid, "resource_version": metadata.resource_version},
            {"uid": "0d6d8d3c-5d3a-4f0e-9a55-3f9d3f1f6c09", "resource_version": present.metadata.resource_version},
        ):
            with pytest.raises(errors.Conflict):
                await api.delete(NODES, "", metadata.name, **preconditions)

        async def delete(seen: Node) -> None:
            """Delete it as it was read."""
            version = seen.metadata.resource_version
            await api.delete(NODES, "", metadata.name, uid=metadata.uid, resource_version=version)

        await undisturbed(api, metadata.name, delete)
        with pytest.raises(errors.NotFound):
            await api.get(NODES, "", metadata.name)

    async def test_a_finalizer_goes_through_the_status_of_a_service(self, api: KubeAPI, namespace: str) -> None:
        """3.3: services/status takes metadata too, so that a Service itself need not be writable."""
        made = await api.create(SERVICES, namespace, service(namespace, "web"))
        assert made.status.load_balancer.ingress == ()
        version = {"resourceVersion": made.metadata.resource_version}
        patch: dict[str, Any] = {"metadata": version | {"finalizers": [FINALIZER]}}
        patched = await api.patch(SERVICES, namespace, "web", patch, subresource="status")
        assert patched.metadata.finalizers == (FINALIZER,)

        ingress = [{"ip": "198.51.100.1", "ipMode": "Proxy"}, {"ip": "10.0.0.1", "ipMode": "VIP"}]
        status = {"status": {"loadBalancer": {"ingress": ingress}}}
        assert (await api.patch(SERVICES, namespace, "web", status)).status.load_balancer.ingress == ()
        patched = await api.patch(SERVICES, namespace, "web", status, subresource="status")
        assert [each.dump() for each in patched.status.load_balancer.ingress] == ingress

        await api.delete(SERVICES, namespace, "web")
        assert (await api.get(SERVICES, namespace, "web")).metadata.is_being_deleted
        await api.patch(SERVICES, namespace, "web", {"metadata": {"finalizers": None}}, subresource="status")
        with pytest.raises(errors.NotFound):
            await api.get(SERVICES, namespace, "web")
