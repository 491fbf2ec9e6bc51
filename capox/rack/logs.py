"""The rack's own log, on standard error: for people or as JSON.

What looks like a token is crossed out before a line is written, whoever wrote it. Bodies are never logged.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from capox.rack.calls import LoggedCall
from capox.rack.credentials import without_secrets

LogFormat = Literal["console", "json"]
LEVELS = ("debug", "info", "warning", "error")

_logger = structlog.get_logger()


def configure(log_format: LogFormat, level: str, stream: TextIO = sys.stderr) -> None:
    """Set up structlog and the standard library's logging, which uvicorn uses, to write in one form.

    Args:
        log_format: for people or as JSON.
        level: one of `LEVELS`; at `debug` every request is logged.
        stream: where to.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Plain tracebacks in both forms: the pretty ones show the values of variables.
    written: Processor = structlog.processors.JSONRenderer()
    if log_format == "console":
        written = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        _hide_tokens,
        written,
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # uvicorn's own start and stop messages say less than ours.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def log_call(entry: LoggedCall) -> None:
    """Log one request that is over, at level debug."""
    _logger.debug(
        "Finishing request",
        method=entry.method,
        path=entry.path,
        operation=entry.operation,
        user=entry.user,
        status=int(entry.status) if entry.status is not None else None,
        error_code=entry.error_code,
        fault=entry.fault,
        seconds=entry.seconds,
        requestID=entry.request_id,
    )


def _hide_tokens(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {key: without_secrets(value) if isinstance(value, str) else value for key, value in event.items()}
