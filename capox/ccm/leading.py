"""No write without the Lease (R1): what every write of this room passes on its way out.

The Lease is looked at before each single write, not once a pass: a process that slept, or a pass that took long, must
not go on where another replica has begun.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from capox.kube.client import KubeAPI, Labels, Patch
from capox.kube.kind import Kind
from capox.kube.objects import Resource

__all__ = ["LeadingKube", "NotLeadingError"]

R = TypeVar("R", bound=Resource)


class NotLeadingError(Exception):
    """A write was about to be sent while the Lease is not surely ours. Nothing was sent."""


class LeadingKube(KubeAPI):
    """The Kubernetes API for whoever writes only while it leads.

    Args:
        kube: What carries the calls.
        is_leading: Whether the Lease is ours at this moment.
    """

    def __init__(self, kube: KubeAPI, is_leading: Callable[[], bool]) -> None:
        self._kube = kube
        self._is_leading = is_leading

    async def get(self, kind: Kind[R], namespace: str, name: str) -> R:
        """Read one object, live."""
        return await self._kube.get(kind, namespace, name)

    async def list(self, kind: Kind[R], namespace: str | None, labels: Labels | None = None) -> builtins.list[R]:
        """Read all objects of a kind, in one namespace or (None) in all."""
        return await self._kube.list(kind, namespace, labels)

    async def create(self, kind: Kind[R], namespace: str, document: Mapping[str, Any]) -> R:
        """Make an object.

        Raises:
            NotLeadingError: The Lease is not surely ours.
        """
        self._check("create", kind, namespace, "")
        return await self._kube.create(kind, namespace, document)

    async def patch(
        self, kind: Kind[R], namespace: str, name: str, patch: Patch, *, subresource: str | None = None
    ) -> R:
        """Merge a patch into an object or its status.

        Raises:
            NotLeadingError: The Lease is not surely ours.
        """
        self._check("patch", kind, namespace, name)
        return await self._kube.patch(kind, namespace, name, patch, subresource=subresource)

    async def apply(self, kind: Kind[R], namespace: str, name: str, document: Mapping[str, Any]) -> R:
        """Apply a document server-side.

        Raises:
            NotLeadingError: The Lease is not surely ours.
        """
        self._check("apply", kind, namespace, name)
        return await self._kube.apply(kind, namespace, name, document)

    async def delete(
        self,
        kind: Kind[Any],
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for an object's deletion.

        Raises:
            NotLeadingError: The Lease is not surely ours.
        """
        self._check("delete", kind, namespace, name)
        await self._kube.delete(kind, namespace, name, uid=uid, resource_version=resource_version)

    def _check(self, verb: str, kind: Kind[Any], namespace: str, name: str) -> None:
        if not self._is_leading():
            raise NotLeadingError(f"{verb} of {kind} {namespace}/{name}: the Lease is not surely ours")
