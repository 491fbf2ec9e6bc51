"""How tests write logs: as text, with plain tracebacks.

Structlog's own default draws every traceback with the values of all variables, which took most of a simulation's time.
"""

from __future__ import annotations

from typing import Final

import structlog
from structlog.typing import Processor

PROCESSORS: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
]
"""For `structlog.configure`."""
