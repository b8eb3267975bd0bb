"""Logs: one JSON object a line for machines, columns for people, the same for our own events and those of the server and libraries."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

# Kept, because json.dumps with options builds a new encoder for every line.
_ENCODE = json.JSONEncoder(default=repr, ensure_ascii=True).encode


def _as_json_line(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    return _ENCODE(event)


_request_lines: TextIO | None = None
"""Where the lines of requests are written as JSON, None when they go the way of all events."""


def log_request(*, request_id: str, method: str, route: str | None, status: int, duration_s: float, problem: str | None) -> None:
    """Log that a request has ended; as JSON written by hand, which takes a third of what an event costs and is paid by every request."""
    if _request_lines is None:
        fields = {"method": method, "route": route, "status": status, "duration_s": round(duration_s, 6)}
        structlog.get_logger().info("request", **fields, **({"problem": problem} if problem else {}))
        return
    # The method is the caller's text; the route and the code of the problem are ours, and the id was checked or made.
    verb = method if method.isalpha() and method.isascii() else _ENCODE(method)[1:-1]
    path = "null" if route is None else f'"{route}"'
    reason = f',"problem":"{problem}"' if problem else ""
    _request_lines.write(
        f'{{"at":"{datetime.now(UTC).isoformat()}","level":"info","event":"request","request_id":"{request_id}",'
        f'"method":"{verb}","route":{path},"status":{status},"duration_s":{duration_s:.6f}{reason}}}\n'
    )
    _request_lines.flush()


def configure(*, as_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Set up logging for this process; JSON unless the stream is a terminal, or as `as_json` says; standard error by default.

    Start uvicorn with `log_config=None` and `access_log=False`: its messages then come through here, and requests are logged by
    `app.api.request_edge` with their id and route.
    """
    out = sys.stderr if stream is None else stream
    json_lines = not out.isatty() if as_json is None else as_json
    global _request_lines
    _request_lines = out if json_lines else None
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%f+00:00", utc=True, key="at"),
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
    # Alembic introduces itself whenever the schema is looked at, by every readiness probe; what it changed is what matters.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    logging.getLogger("alembic.runtime.migration").addFilter(_is_news)
    # Every part of a job would be told four times over.
    logging.getLogger("procrastinate").setLevel(logging.WARNING)


def without_locals() -> None:
    """Plain tracebacks where nobody has called `configure`; the service calls it when it is made.

    What structlog does by itself prints the local variables of every frame: what callers sent, and for seconds to minutes the catalog.
    """
    if structlog.is_configured():
        return
    *shared, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*shared, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)])


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(("Context impl", "Will assume"))


def reset() -> None:
    """Undo `configure` for the events of this service; for tests, which share a process."""
    global _request_lines
    _request_lines = None
    structlog.reset_defaults()
    without_locals()
    logging.captureWarnings(False)
    logging.getLogger("alembic.runtime.migration").removeFilter(_is_news)
