"""Formats log events as text lines or as one JSON object per line."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

from twisted.internet.error import ReactorNotRunning
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from twisted.python import context
from twisted.python.log import ILogContext
from zope.interface import provider

FORMATS = ("text", "json")

OURS = "kreplica"
_HOST = re.compile(r"broker-[0-9]+")
_NOT_FIELDS = frozenset(
    {
        "log_logger",
        "log_level",
        "log_namespace",
        "log_source",
        "log_format",
        "log_time",
        "log_system",
        "log_failure",
        "log_trace",
        "log_flattened",
        "log_legacy",
        "log_text",
        "log_io",
        "isError",
        "message",
        "format",
        "time",
        "system",
        "failure",
        "why",
    }
)


def observer(log_format: str, output: TextIO | None = None) -> ILogObserver:
    """Return an observer that writes each event as one line.

    kreplica's own events are written at level ``info`` and above, those of libraries at ``warn`` and above, because
    Twisted announces every port and factory.

    :param log_format: ``text`` or ``json``.
    :param output: by default, the real standard error, since Twisted replaces ``sys.stderr``.
    """
    write = (output or sys.__stderr__ or sys.stderr).write
    render = _json_line if log_format == "json" else _text_line

    @provider(ILogObserver)
    def observe(event: LogEvent) -> None:
        if _should_write(event):
            try:
                write(render(event))
            except (OSError, ValueError):
                pass  # the output is closed, so the failure cannot be reported

    return cast(ILogObserver, observe)


def relay(log_format: str, name: str, output: TextIO | None = None) -> Callable[[str], None]:
    """Return a function that writes another process's log lines, prefixed with its name.

    :param log_format: the format that both processes use.
    :param output: see ``observer``.
    """
    write = (output or sys.__stderr__ or sys.stderr).write
    first = json.dumps({"host": name})[:-1]

    def relayed(line: str) -> None:
        if log_format != "json":
            text = f"{name}: {line}"
        elif line.startswith('{"'):
            text = f"{first}, {line[1:]}"
        else:
            text = json.dumps({"host": name, "message": line}, ensure_ascii=False)
        try:
            write(f"{text}\n")
        except (OSError, ValueError):
            pass  # the output is closed, as in ``observe``

    return relayed


def _should_write(event: LogEvent) -> bool:
    failure = event.get("log_failure")
    if failure is not None and failure.check(ReactorNotRunning):
        return False  # a second Ctrl-C: the process is already stopping
    level = event.get("log_level") or LogLevel.info
    namespace = str(event.get("log_namespace", ""))
    least = LogLevel.info if namespace == OURS or namespace.startswith(OURS + ".") else LogLevel.warn
    return bool(level >= least)


def _text_line(event: LogEvent) -> str:
    at = time.localtime(event.get("log_time"))
    level = (event.get("log_level") or LogLevel.info).name
    host = _host()
    prefix = f"{host}: " if host is not None else ""
    text = f"{time.strftime('%H:%M:%S', at)} {level:<8} {prefix}{formatEvent(event)}\n"
    failure = event.get("log_failure")
    return text + (_indent(failure.getTraceback()) if failure is not None else "")


def _host() -> str | None:
    """Return the simulated host's name from Twisted's log context, which identifies one of several brokers."""
    system: str = context.get(ILogContext)["system"]
    return system if _HOST.fullmatch(system) else None


def _indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.rstrip().splitlines())


def _json_line(event: LogEvent) -> str:
    line: dict[str, Any] = {
        "time": event.get("log_time"),
        "level": (event.get("log_level") or LogLevel.info).name,
        "logger": event.get("log_namespace"),
        "message": formatEvent(event),
    }
    host = _host()
    if host is not None:
        line["host"] = host
    fields = {name: _plain(value) for name, value in event.items() if name not in _NOT_FIELDS}
    if fields:
        line["fields"] = fields
    failure = event.get("log_failure")
    if failure is not None:
        line["traceback"] = failure.getTraceback()
    return json.dumps(line, ensure_ascii=False) + "\n"


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
