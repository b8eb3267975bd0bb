"""Logs: one JSON object a line for machines, columns for people, the same for our own events and those of the server and libraries."""

import json
import logging
import sys
from typing import Any, TextIO

import structlog

# Kept, because json.dumps with options builds a new encoder for every line.
_ENCODE = json.JSONEncoder(default=repr, ensure_ascii=True).encode


def _as_json_line(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    return _ENCODE(event)


def configure(*, as_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Set up logging for this process; JSON unless the stream is a terminal, or as `as_json` says; standard error by default.

    Start uvicorn with `log_config=None` and `access_log=False`: its messages then come through here, and requests are logged by
    `app.api.request_edge` with their id and route.
    """
    out = sys.stderr if stream is None else stream
    json_lines = not out.isatty() if as_json is None else as_json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    rendering: list[Any] = (
        # Tracebacks as text: structured ones would carry local variables, and with them what callers sent.
        [structlog.processors.format_exc_info, _as_json_line]
        if json_lines
        else [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    # Alembic reports its plugins and contexts at every start; what it changed is what matters.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
