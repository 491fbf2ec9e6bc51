"""The log of the programs that run in a cluster: JSON lines or text, on standard error.

Tracebacks are plain: the pretty ones show the values of variables, and one of those may be a token or user data.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

__all__ = ["configure"]


def configure(*, level: str, is_json: bool, stream: TextIO = sys.stderr) -> None:
    """Set up structlog, and the standard library's logging that the libraries use, to write in one form.

    Args:
        level: The least level that is written: debug, info, warning or error.
        is_json: JSON lines, else text for people.
        stream: Where to.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    written: Processor = structlog.processors.JSONRenderer()
    if not is_json:
        written = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, written],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # They log whole requests and objects at debug level (K-43).
    for library in ("kopf", "aiohttp", "httpx", "httpcore", "kubernetes", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
