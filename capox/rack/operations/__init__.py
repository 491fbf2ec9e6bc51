"""The API's operations, a module a resource. Importing this package registers all of them."""

from __future__ import annotations

from capox.rack.operations import projects, serial_console, session

__all__ = ["projects", "serial_console", "session"]
