"""The simulated store behind HTTP: discovery, paged lists and watches, with the bad days that watchers must survive."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from tests.sim.store import Change, Store
from tests.unit.kube.api_server import FakeAPIServer, status

__all__ = ["StoreServer"]


class StoreServer:
    """Answers the requests of a `FakeAPIServer` from a store.

    Args:
        store: The cluster.
        server: Where the requests come in.

    Attributes:
        refusal: The status that every request is answered with; None when all is well.
        watches: How many watches are open now, by plural.
    """

    def __init__(self, store: Store, server: FakeAPIServer) -> None:
        self._store = store
        self.refusal: tuple[int, str] | None = None
        self.watches: dict[str, int] = {}
        self._events: list[Change] = []
        self._forgotten_until = 0
        self._news = asyncio.Condition()
        self._final_errors: dict[int, dict[str, Any]] = {}
        self._era = 0
        self._notifying: set[asyncio.Task[None]] = set()
        store.subscribe(self._on_change)
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if self.refusal is not None:
            return await status(*self.refusal)(request)
        match [part for part in request.path.split("/") if part]:
            case ["api"]:
                return web.json_response({"versions": ["v1"]})
            case ["apis"]:
                return web.json_response({"groups": self._groups()})
            case ["api", version] | ["apis", _, version] as path:
                return self._resources(path[1] if path[0] == "apis" else "", version)
            case [*_, "namespaces", namespace, plural]:
                return await self._collection(request, plural, namespace)
            case [*_, plural]:
                return await self._collection(request, plural, None)
            case _:
                return await status(404, "NotFound")(request)

    async def forget_history(self) -> None:
        """Compact: a watch that begins at an older version is told 410."""
        self._forgotten_until = self._version
        await self.end_watches()

    async def end_watches(self, code: int | None = None, reason: str = "InternalError") -> None:
        """End all open watches, with an ERROR event or without."""
        async with self._news:
            if code is not None:
                self._final_errors[self._era] = {"kind": "Status", "code": code, "reason": reason}
            self._era += 1
            self._news.notify_all()

    @property
    def _version(self) -> int:
        return int(self._events[-1].document["metadata"]["resourceVersion"]) if self._events else 0

    def _groups(self) -> list[dict[str, Any]]:
        versions = {kind.group: kind.version for kind in self._store.kinds() if kind.group}
        return [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version in versions.items()
        ]

    def _resources(self, group: str, version: str) -> web.Response:
        rows = [(kind.plural, kind.name, True) for kind in self._store.kinds() if kind.group == group]
        if not group:
            rows.append(("namespaces", "Namespace", False))
        resources = [
            {"name": plural, "kind": name, "singularName": name.lower(), "namespaced": is_namespaced, "verbs": _VERBS}
            for plural, name, is_namespaced in rows
        ]
        return web.json_response({"groupVersion": f"{group}/{version}", "resources": resources})

    async def _collection(self, request: web.Request, plural: str, namespace: str | None) -> web.StreamResponse:
        kind = next((kind for kind in self._store.kinds() if kind.plural == plural), None)
        if kind is None:
            return await status(404, "NotFound")(request)
        if "watch" in request.query:
            return await self._watch(request, plural, namespace)
        labels = {part: None for part in request.query.get("labelSelector", "").split(",") if part}
        items = self._store.list(kind, namespace, labels)
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 0) or len(items)
        following = str(start + limit) if start + limit < len(items) else ""
        metadata = {"resourceVersion": str(self._version), "continue": following}
        page = items[start : start + limit]
        return web.json_response({"kind": f"{kind.name}List", "items": page, "metadata": metadata})

    async def _watch(self, request: web.Request, plural: str, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        version, era = int(request.query.get("resourceVersion") or 0), self._era
        if version < self._forgotten_until:
            await _send(response, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
            return response
        self.watches[plural] = self.watches.get(plural, 0) + 1
        try:
            while True:
                for change in [event for event in self._events if _version_of(event) > version]:
                    version = _version_of(change)
                    if change.kind.plural == plural and namespace in (None, change.key[0]):
                        await _send(response, change.type, change.document)
                async with self._news:
                    while self._version <= version and self._era == era:
                        await self._news.wait()
                if self._era != era:
                    if era in self._final_errors:
                        await _send(response, "ERROR", self._final_errors[era])
                    return response
        finally:
            self.watches[plural] -= 1

    def _on_change(self, change: Change) -> None:
        self._events.append(change)
        task = asyncio.get_running_loop().create_task(self._notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


_VERBS = ["get", "list", "watch"]


def _version_of(change: Change) -> int:
    return int(change.document["metadata"]["resourceVersion"])


async def _send(response: web.StreamResponse, type_: str, document: Any) -> None:
    await response.write(json.dumps({"type": type_, "object": document}).encode() + b"\n")
