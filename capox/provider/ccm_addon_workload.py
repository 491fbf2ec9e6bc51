"""A workload cluster as the add-on sees and changes it. Every answer comes from a stranger, and nothing of it is kept.

Only what bears the add-on's label is ever removed, and only the object that was seen.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from capox.kube.client import KubeAPI, Labels
from capox.kube.errors import KubeError, NotFound
from capox.kube.kind import SECRETS, Kind
from capox.kube.lease import LEASES
from capox.kube.objects import Resource, Secret
from capox.provider import ccm_addon_plan as plan
from capox.provider.ccm_addon_kinds import DAEMON_SETS, DEPLOYMENTS, INSTALLED, NODES, Manifest
from capox.provider.ccm_addon_manifests import NAME, NAMESPACE, packaged

__all__ = ["Workload", "WorkloadError"]

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
LEASE: Final = "cloud-controller-manager"

_Key = tuple[str, str, str]
R = TypeVar("R", bound=Resource)


class WorkloadError(Exception):
    """The workload cluster did not answer, or not as it should; in words that may be a stranger's."""


class Workload:
    """One workload cluster, for one pass.

    Args:
        kube: Its API.
        now: The wall clock, for the age of a Lease.

    Attributes:
        found: Our objects by kind, namespace and name, as they were read; the Secret is apart.
        secret: Our Secret; None when there is none.
    """

    def __init__(self, kube: KubeAPI, now: datetime.datetime) -> None:
        self._kube = _Abroad(kube)
        self._now = now
        self.found: dict[_Key, Manifest | None] = {}
        self.secret: Secret | None = None

    @property
    def is_ours(self) -> bool:
        """Whether anything is there that the add-on has installed."""
        there: list[Resource | None] = [self.secret, *self.found.values()]
        return any(each is not None and plan.is_ours(each.metadata.labels) for each in there)

    async def observe(self) -> None:
        """Read what has the names of what is installed.

        Raises:
            WorkloadError: The cluster does not answer, or not properly.
        """
        for key in _names():
            kind, namespace, name = key
            self.found[key] = await self._find(INSTALLED[kind], namespace, name)
        self.secret = await self._find(SECRETS, NAMESPACE, NAME)

    async def look_around(self) -> plan.Seen:
        """Find out whether the cluster is new, or somebody else's.

        Raises:
            WorkloadError: The cluster does not answer, or not properly.
        """
        if self.is_ours:
            return plan.Seen(is_ours=True)
        nodes = await self._kube.list(NODES, None)
        has_new_node = any(node.has_taint(plan.UNINITIALIZED_TAINT) for node in nodes)
        return plan.Seen(
            is_ours=False,
            has_nodes=bool(nodes),
            has_new_node=has_new_node,
            # In an old cluster there can be many Deployments, and nothing would come of what they are.
            stranger=await self._stranger() if has_new_node else "",
        )

    async def has_control_plane_nodes(self) -> bool:
        """Whether a Node belongs to the control plane.

        Raises:
            WorkloadError: The cluster does not answer, or not properly.
        """
        return bool(await self._kube.list(NODES, None, {CONTROL_PLANE_LABEL: None}))

    def drifted(self, wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those of some documents that are not there as they should be."""
        return plan.drifted(wanted, (self.document(each) for each in wanted))

    def document(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """The object of a document's kind and name, as it is."""
        there = self.found.get(_key(wanted))
        return there.document() if there is not None else None

    def is_keyed(self, values: Mapping[str, str]) -> bool:
        """Whether our Secret holds just these values."""
        if self.secret is None or not plan.is_ours(self.secret.metadata.labels):
            return False
        held = {key: value.get_secret_value() for key, value in self.secret.data.items()}
        return held == {key: value.encode() for key, value in values.items()}

    async def apply(self, document: Mapping[str, Any]) -> bool:
        """Apply one object.

        Returns:
            Whether that has changed anything: the API may have written what is wanted in another way.

        Raises:
            WorkloadError: It was not applied, or nobody knows.
        """
        kind = SECRETS if document["kind"] == "Secret" else INSTALLED[document["kind"]]
        metadata = document["metadata"]
        before: Resource | None = self.secret if kind is SECRETS else self.found.get(_key(document))
        stored = await self._kube.apply(kind, metadata.get("namespace", ""), metadata["name"], document)
        if isinstance(stored, Secret):
            self.secret = stored
        else:
            self.found[_key(document)] = stored
        return before is None or before.metadata.resource_version != stored.metadata.resource_version

    async def remove(self, kinds: Iterable[str] | None = None) -> list[str]:
        """Delete what the add-on has installed, the Pods first and their credentials next.

        Args:
            kinds: Only these; all, the Secret included, when absent.

        Returns:
            What was deleted.

        Raises:
            WorkloadError: Something is still there.
        """
        removed = []
        for key in reversed(list(self.found)):
            kind, namespace, name = key
            if kinds is None or kind in kinds:
                removed += await self._delete(INSTALLED[kind], namespace, name, self.found[key])
                self.found[key] = None
            if kind == DAEMON_SETS.name and kinds is None:
                removed += await self._delete(SECRETS, NAMESPACE, NAME, self.secret)
                self.secret = None
        return removed

    async def _delete(self, kind: Kind[Any], namespace: str, name: str, there: Resource | None) -> list[str]:
        if there is None or not plan.is_ours(there.metadata.labels):
            return []
        with contextlib.suppress(NotFound):
            await self._kube.delete(kind, namespace, name, uid=there.metadata.uid)
        return [f"{kind.name} {name}"]

    async def _stranger(self) -> str:
        kinds: tuple[Kind[Any], ...] = (DAEMON_SETS, DEPLOYMENTS)
        for kind in kinds:
            found: list[Any] = await self._kube.list(kind, None)
            for each in found:
                document = each.document()
                if said := plan.runs_another(kind.name, document["metadata"], each.part("spec")):
                    return said
        lease = await self._find(LEASES, NAMESPACE, LEASE)
        if lease is None:
            return ""
        spec = lease.spec
        return plan.live_stranger(spec.holder_identity, spec.renew_time, spec.lease_duration_seconds, self._now)

    async def _find(self, kind: Kind[Any], namespace: str, name: str) -> Any:
        try:
            return await self._kube.get(kind, namespace, name)
        except NotFound:
            return None


class _Abroad:
    """The calls that are made abroad, with what goes wrong there told apart from what does at home."""

    def __init__(self, kube: KubeAPI) -> None:
        self._kube = kube

    async def get(self, kind: Kind[R], namespace: str, name: str) -> R:
        """Read one object."""
        with _told_apart():
            return await self._kube.get(kind, namespace, name)

    async def list(self, kind: Kind[R], namespace: str | None, labels: Labels | None = None) -> list[R]:
        """Read all objects of a kind."""
        with _told_apart():
            return await self._kube.list(kind, namespace, labels)

    async def apply(self, kind: Kind[R], namespace: str, name: str, document: Mapping[str, Any]) -> R:
        """Apply a document."""
        with _told_apart():
            return await self._kube.apply(kind, namespace, name, document)

    async def delete(self, kind: Kind[Any], namespace: str, name: str, *, uid: str) -> None:
        """Delete the object that has this uid."""
        with _told_apart():
            await self._kube.delete(kind, namespace, name, uid=uid)


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except NotFound:
        raise
    except KubeError as error:
        raise WorkloadError(str(error)) from error


def _names() -> list[_Key]:
    """Everything but the Secret, the workload in both of its kinds last."""
    keys = [_key(document) for document in packaged() if document["kind"] != "Secret"]
    return [*keys, (DEPLOYMENTS.name, NAMESPACE, NAME)]


def _key(document: Mapping[str, Any]) -> _Key:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]
