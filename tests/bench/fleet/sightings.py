"""When the objects of a kind were first seen in a state, by a watch of our own: nobody under test is asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import urlsplit

from hack.controlplane.plane import ControlPlane

__all__ = ["GONE", "Sightings"]

GONE: Final = "gone"
"""The state of an object that has been deleted."""

_WATCH_SECONDS: Final = 3600

State = Callable[[Mapping[str, Any]], bool]


class Sightings:
    """A watch, from entering the context to leaving it.

    Args:
        plane: The control plane.
        path: The objects' path.
        states: The states by name: whether an object is in it.
    """

    def __init__(self, plane: ControlPlane, path: str, states: Mapping[str, State]) -> None:
        self._path = path
        self._states = states
        self._firsts: dict[str, dict[str, float]] = {state: {} for state in (*states, GONE)}
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_over = False
        address = urlsplit(plane.server)
        directory = plane.pki.directory
        context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=_WATCH_SECONDS
        )
        self._version = plane.client.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(2)
        self._thread.join()
        self._connection.close()

    def await_all(self, state: str, count: int, *, within_seconds: float) -> float:
        """Wait until so many objects have been seen in a state.

        Returns:
            When the last of them was, on `time.monotonic`.

        Raises:
            AssertionError: They were not, or the watch ended.
        """
        firsts = self._firsts[state]
        with self._changed:
            self._changed.wait_for(lambda: len(firsts) >= count or self._error, within_seconds)
            if self._error is not None:
                raise AssertionError(f"the watch of {self._path} ended") from self._error
            assert len(firsts) >= count, f"{len(firsts)} of {count} {state} within {within_seconds:.0f} s: {self._path}"
            return max(firsts.values())

    def last(self, state: str) -> float | None:
        """When the last object was first seen in a state, on `time.monotonic`; None when none was."""
        with self._changed:
            return max(self._firsts[state].values(), default=None)

    def count(self, state: str) -> int:
        """How many objects were seen in a state."""
        with self._changed:
            return len(self._firsts[state])

    def _run(self) -> None:
        try:
            while not self._is_over:
                # An apiserver ends a watch when it likes, above all when a kind's definition is written.
                self._watch_once()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._end(error)

    def _watch_once(self) -> None:
        query = f"?watch=1&resourceVersion={self._version}&timeoutSeconds={_WATCH_SECONDS}"
        self._connection.request("GET", self._path + query)
        response = self._connection.getresponse()
        if response.status == http.client.TOO_MANY_REQUESTS:
            response.read()
            time.sleep(1)
            return
        while line := response.readline():
            event = json.loads(line)
            self._see(event)
            self._version = event["object"]["metadata"]["resourceVersion"]
        self._connection.close()

    def _end(self, error: Exception) -> None:
        with self._changed:
            self._error = None if self._is_over else error
            self._changed.notify_all()

    def _see(self, event: Mapping[str, Any]) -> None:
        now, document = time.monotonic(), event["object"]
        if event["type"] == "ERROR":
            raise ValueError(json.dumps(document))
        if event["type"] == "DELETED":
            seen = [GONE]
        else:
            seen = [state for state, is_in in self._states.items() if is_in(document)]
        with self._changed:
            for state in seen:
                self._firsts[state].setdefault(document["metadata"]["name"], now)
            self._changed.notify_all()
