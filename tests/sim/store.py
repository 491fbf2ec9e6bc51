"""A small Kubernetes in memory: what the apiserver does to objects, without the apiserver.

It keeps the rules on which controllers rely, and the contract tests in `tests/contract/kube` hold it to the real one:
resource versions and their preconditions, generations, finalizers and deletion, merge patches, the status apart from
the rest, uid preconditions, label selectors, namespaces and their end, kinds that are not served.

Where it is simpler than the real one:

- Schemas are not checked and unknown fields are kept; `add_rule` adds a check where one matters.
- A server-side apply always forces, replaces lists whole, and knows one field manager.
- Garbage is collected when asked for (`collect_garbage`), in the background way only.

Stored documents are never changed, only replaced, so they may be handed out. Nobody may change what he was given.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from capox.kube import errors
from capox.kube.kind import Kind
from capox.kube.objects import format_timestamp

__all__ = ["Change", "Document", "Rule", "Store", "is_set_once", "merge_patch"]

Document: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]

Rule: TypeAlias = Callable[[Document | None, Document], str | None]
"""A check of one kind's writes: the object before (None when it is new) and after; gives what is wrong, or None."""

_BUILT_IN_GROUPS: Final = frozenset({"", "apps", "coordination.k8s.io", "events.k8s.io"})
_WITH_STATUS: Final = frozenset({"namespaces", "nodes", "pods", "services", "daemonsets.apps", "deployments.apps"})
_SYSTEM_FIELDS: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change of the store, as a watch tells it.

    Attributes:
        type: What has happened.
        kind: The object's kind.
        document: The object after the change, or as it was last when it is gone.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind[Any]
    document: Document

    @property
    def key(self) -> Key:
        """Namespace and name of the object."""
        metadata = self.document["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


class Store:
    """The objects of one cluster.

    Args:
        kinds: The kinds that are served from the start.
        now: The wall clock.
        randomness: Where uids and generated names come from.
        namespaces: The namespaces that are there from the start.
    """

    def __init__(
        self,
        kinds: Iterable[Kind[Any]] = (),
        *,
        now: Callable[[], datetime],
        randomness: random.Random,
        namespaces: Iterable[str] = ("default",),
    ) -> None:
        self._now = now
        self._randomness = randomness
        self._version = 0
        self._objects: dict[str, dict[Key, Document]] = {}
        self._kinds: dict[str, Kind[Any]] = {}
        self._rules: dict[str, list[Rule]] = {}
        self._applied: dict[tuple[str, Key], frozenset[tuple[str, ...]]] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._namespaces: dict[str, bool] = dict.fromkeys(namespaces, False)
        for kind in kinds:
            self.serve(kind)

    # The cluster.

    def serve(self, kind: Kind[Any]) -> None:
        """Serve a kind, as if its CRD was installed."""
        self._kinds[str(kind)] = kind
        self._objects.setdefault(str(kind), {})

    def unserve(self, kind: Kind[Any]) -> None:
        """Serve a kind no more, as if its CRD was deleted; its objects are gone with it."""
        del self._kinds[str(kind)], self._objects[str(kind)]

    def kinds(self) -> Iterable[Kind[Any]]:
        """Give the kinds that are served."""
        return tuple(self._kinds.values())

    def add_rule(self, kind: Kind[Any], rule: Rule) -> None:
        """Check each write of a kind's objects."""
        self._rules.setdefault(str(kind), []).append(rule)

    def subscribe(self, subscriber: Callable[[Change], None]) -> Callable[[], None]:
        """Tell of each change, at once and in order; gives what ends that. A subscriber must not write."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def add_namespace(self, name: str) -> None:
        """Make a namespace."""
        self._namespaces[name] = False

    def delete_namespace(self, name: str) -> None:
        """Begin a namespace's end: nothing new in it, all in it deleted; it is gone when it is empty."""
        self._namespaces[name] = True
        for kind in self._kinds.values():
            for document in self.list(kind, name):
                self.delete(kind, name, document["metadata"]["name"])
        self._forget_namespace(name)

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace is there, be it at its end."""
        return name in self._namespaces

    def collect_garbage(self) -> int:
        """Ask for the deletion of each object whose owners are all gone; gives how many there were."""
        uids = {document["metadata"]["uid"] for objects in self._objects.values() for document in objects.values()}
        garbage = [
            (kind, key)
            for name, kind in self._kinds.items()
            for key, document in self._objects[name].items()
            if not document["metadata"].get("deletionTimestamp")
            and (owners := document["metadata"].get("ownerReferences"))
            and not any(owner["uid"] in uids for owner in owners)
        ]
        for kind, (namespace, name) in garbage:
            self.delete(kind, namespace, name)
        return len(garbage)

    # The calls. Each raises what a client would raise.

    def get(self, kind: Kind[Any], namespace: str, name: str) -> Document:
        """Read one object.

        Raises:
            NotFound: It is not there.
        """
        document = self._of(kind).get((namespace, name))
        if document is None:
            raise errors.NotFound(404, "NotFound", f'{kind} "{name}" not found')
        return document

    def list(
        self, kind: Kind[Any], namespace: str | None, labels: Mapping[str, str | None] | None = None
    ) -> list[Document]:
        """Read all objects of a kind that have these labels, by namespace and name."""
        wanted = labels or {}
        return [
            document
            for (where, _), document in sorted(self._of(kind).items())
            if namespace in (None, "", where) and _has_labels(document, wanted)
        ]

    def create(self, kind: Kind[Any], namespace: str, document: Document) -> Document:
        """Make an object.

        Raises:
            AlreadyExists: There is one of this name.
            Forbidden: The namespace is at its end.
            NotFound: There is no such namespace.
            Invalid: The document is not of this kind or place, or a rule refuses it.
        """
        objects = self._of(kind)
        self._check_identity(kind, namespace, document)
        metadata = dict(document.get("metadata") or {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise errors.Invalid(422, "Invalid", "metadata.name: Required value: name or generateName is required")
            metadata["name"] = f"{metadata['generateName']}{self._randomness.getrandbits(32):08x}"
        key = (namespace, metadata["name"])
        if metadata.get("resourceVersion"):
            raise errors.Invalid(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, namespace, metadata["name"])
        if key in objects:
            raise errors.AlreadyExists(409, "AlreadyExists", f'{kind} "{key[1]}" already exists')
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(field, None)
        metadata |= {"namespace": namespace} if kind.is_namespaced else {}
        metadata |= {"uid": self._uid(), "creationTimestamp": format_timestamp(self._now())}
        if _is_custom(kind) or kind.group == "apps":
            metadata["generation"] = 1
        made = {**document, "metadata": _without_empty(metadata)}
        if _has_status(kind) and str(kind) != "nodes":  # which kubelets bring with them
            made.pop("status", None)
        self._check_rules(kind, None, made)
        return self._store("ADDED", kind, key, made)

    def patch(
        self, kind: Kind[Any], namespace: str, name: str, patch: Document, *, subresource: str | None = None
    ) -> Document:
        """Merge a patch into an object or its status.

        Raises:
            NotFound: It is not there.
            Conflict: It has another resourceVersion than the patch names.
            Invalid: A rule or the deletion of the object refuses the change, or it has another uid.
        """
        assert subresource in (None, "status"), f"the store has no subresource {subresource!r}"
        before = self.get(kind, namespace, name)
        if subresource == "status" and not _has_status(kind):
            raise errors.KindNotServed(404, "NotFound", "the server could not find the requested resource")
        wanted = patch.get("metadata") or {}
        if wanted.get("resourceVersion") not in (None, "", before["metadata"]["resourceVersion"]):
            message = f'Operation cannot be fulfilled on {kind} "{name}": the object has been modified'
            raise errors.Conflict(409, "Conflict", message)
        if wanted.get("uid") not in (None, "", before["metadata"]["uid"]):
            raise errors.Invalid(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        return self._replace(kind, (namespace, name), before, merge_patch(before, patch), subresource)

    def apply(self, kind: Kind[Any], namespace: str, name: str, document: Document) -> Document:
        """Apply a document: set what it names, remove what an earlier one named and this one does not.

        Raises:
            Invalid: As with `create` and `patch`.
            Conflict: It has another resourceVersion than the document names.
        """
        self._check_identity(kind, namespace, document)
        place = (str(kind), (namespace, name))
        named = frozenset(_leaves({field: part for field, part in document.items() if field != "status"}))
        if (namespace, name) not in self._of(kind):
            stored = self.create(kind, namespace, document)
        else:
            removed = self._applied.get(place, frozenset()) - named
            # Merged into the removals, so that what is named stays and only the rest of them is null.
            stored = self.patch(kind, namespace, name, merge_patch(_removals(removed), document))
        self._applied[place] = named
        return stored

    def delete(
        self, kind: Kind[Any], namespace: str, name: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> None:
        """Ask for an object's deletion.

        Raises:
            NotFound: It is not there.
            Conflict: It has another uid or resourceVersion.
        """
        before = self.get(kind, namespace, name)
        metadata = before["metadata"]
        for field, wanted in (("uid", uid), ("resourceVersion", resource_version)):
            if wanted is not None and wanted != metadata[field]:
                raise errors.Conflict(409, "Conflict", f"Precondition failed: {field} in precondition: {wanted}")
        if not metadata.get("finalizers"):
            self._remove(kind, (namespace, name), before)
        elif not metadata.get("deletionTimestamp"):
            times = {"deletionTimestamp": format_timestamp(self._now()), "deletionGracePeriodSeconds": 0}
            raised = {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
            self._store("MODIFIED", kind, (namespace, name), {**before, "metadata": {**metadata, **times, **raised}})

    # What is behind them.

    def _of(self, kind: Kind[Any]) -> dict[Key, Document]:
        if str(kind) not in self._kinds:
            raise errors.KindNotServed(404, "NotFound", "the server could not find the requested resource")
        return self._objects[str(kind)]

    def _check_identity(self, kind: Kind[Any], namespace: str, document: Document) -> None:
        if (document.get("apiVersion"), document.get("kind")) != (kind.api_version, kind.name):
            raise errors.Invalid(400, "BadRequest", f"the document is not a {kind.name} of {kind.api_version}")
        if (document.get("metadata") or {}).get("namespace", namespace) != namespace:
            raise errors.Invalid(400, "BadRequest", "the namespace of the object does not match that of the request")

    def _check_namespace(self, kind: Kind[Any], namespace: str, name: str) -> None:
        if not kind.is_namespaced:
            return
        if namespace not in self._namespaces:
            raise errors.NotFound(404, "NotFound", f'namespaces "{namespace}" not found')
        if self._namespaces[namespace]:
            message = f'{kind} "{name}" is forbidden: the namespace {namespace} is being terminated'
            raise errors.Forbidden(403, "Forbidden", message, ("NamespaceTerminating",))

    def _check_rules(self, kind: Kind[Any], before: Document | None, after: Document) -> None:
        for rule in self._rules.get(str(kind), ()):
            wrong = rule(before, after)
            if wrong is not None:
                message = f'{kind.name} "{after["metadata"]["name"]}" is invalid: {wrong}'
                raise errors.Invalid(422, "Invalid", message)

    def _replace(
        self, kind: Kind[Any], key: Key, before: Document, merged: Document, subresource: str | None
    ) -> Document:
        """Store what a write makes of an object: only the part that this write may touch."""
        if subresource == "status":
            after = {**before, "status": merged.get("status")}
            if not _is_custom(kind):  # these take metadata with their status, finalizers too
                after["metadata"] = self._kept(kind, before["metadata"], merged.get("metadata") or {})
        else:
            after = {**merged, "metadata": self._kept(kind, before["metadata"], merged.get("metadata") or {})}
            if _has_status(kind):
                after["status"] = before.get("status")
        if after.get("status") is None:
            after.pop("status", None)
        if (after.get("apiVersion"), after.get("kind")) != (before["apiVersion"], before["kind"]):
            raise errors.Invalid(400, "BadRequest", "apiVersion and kind of an object do not change")
        if after == before:
            return before
        self._check_rules(kind, before, after)
        metadata = after["metadata"]
        if "generation" in metadata and _spec(before) != _spec(after):
            after["metadata"] = {**metadata, "generation": metadata["generation"] + 1}
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self._remove(kind, key, after)
        return self._store("MODIFIED", kind, key, after)

    def _kept(self, kind: Kind[Any], before: Document, wanted: Document) -> dict[str, Any]:
        """Metadata after a write: what the system owns stays as it is."""
        if wanted.get("name", before["name"]) != before["name"]:
            raise errors.Invalid(400, "BadRequest", "the name of an object does not change")
        added = set(wanted.get("finalizers") or ()) - set(before.get("finalizers") or ())
        unqualified = [] if _is_custom(kind) else sorted(each for each in added if "/" not in each)
        if unqualified:
            message = f"metadata.finalizers: Invalid value: not fully qualified: {unqualified}"
            raise errors.Invalid(422, "Invalid", message)
        if before.get("deletionTimestamp") and added:
            message = f"metadata.finalizers: Forbidden: no new finalizers while being deleted, found {sorted(added)}"
            raise errors.Invalid(422, "Invalid", message)
        metadata = {field: value for field, value in wanted.items() if field not in _SYSTEM_FIELDS}
        metadata |= {field: before[field] for field in _SYSTEM_FIELDS if field in before}
        return _without_empty(metadata)

    def _store(self, type_: Literal["ADDED", "MODIFIED"], kind: Kind[Any], key: Key, document: Document) -> Document:
        stored = self._versioned(document)
        self._objects[str(kind)][key] = stored
        self._tell(Change(type_, kind, stored))
        return stored

    def _remove(self, kind: Kind[Any], key: Key, document: Document) -> Document:
        gone = self._versioned(document)
        del self._objects[str(kind)][key]
        self._applied.pop((str(kind), key), None)
        self._tell(Change("DELETED", kind, gone))
        self._forget_namespace(key[0])
        return gone

    def _versioned(self, document: Document) -> Document:
        self._version += 1
        return {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._version)}}

    def _tell(self, change: Change) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(change)

    def _forget_namespace(self, name: str) -> None:
        is_empty = not any(key[0] == name for objects in self._objects.values() for key in objects)
        if self._namespaces.get(name) and is_empty:
            del self._namespaces[name]

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._randomness.getrandbits(128), version=4))


def merge_patch(target: Document, patch: Document) -> dict[str, Any]:
    """Give a document with a JSON merge patch applied (RFC 7386); the document itself stays as it is."""
    merged = dict(target)
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        elif isinstance(value, Mapping):
            below = merged.get(field)
            merged[field] = merge_patch(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[field] = value
    return merged


def is_set_once(*path: str) -> Rule:
    """Give the rule that a field may be set, and then neither changes nor goes away."""

    def rule(before: Document | None, after: Document) -> str | None:
        old, new = _at(before or {}, path), _at(after, path)
        return None if old in (None, "", new) else f"{'.'.join(path)}: Invalid value: it is set and does not change"

    return rule


def _at(document: Document, path: tuple[str, ...]) -> Any:
    found: Any = document
    for field in path:
        found = found.get(field) if isinstance(found, Mapping) else None
    return found


def _is_custom(kind: Kind[Any]) -> bool:
    """Whether a kind comes from a CRD: it has a generation, and a status apart."""
    return kind.group not in _BUILT_IN_GROUPS


def _has_status(kind: Kind[Any]) -> bool:
    """Whether a kind has its status apart."""
    return _is_custom(kind) or str(kind) in _WITH_STATUS


def _spec(document: Document) -> dict[str, Any]:
    return {field: part for field, part in document.items() if field not in ("metadata", "status")}


def _has_labels(document: Document, wanted: Mapping[str, str | None]) -> bool:
    labels = document["metadata"].get("labels") or {}
    return all(key in labels and value in (None, labels[key]) for key, value in wanted.items())


def _without_empty(metadata: Document) -> dict[str, Any]:
    """Metadata as it is answered: what is empty is left out."""
    return {field: value for field, value in metadata.items() if value not in (None, "", [], {}, ())}


def _leaves(document: Document, above: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    for field, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, field))
        else:
            yield (*above, field)


def _removals(paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """The merge patch that removes some fields."""
    patch: dict[str, Any] = {}
    for path in paths:
        below = patch
        for field in path[:-1]:
            below = below.setdefault(field, {})
        below[path[-1]] = None
    return patch
