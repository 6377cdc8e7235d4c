"""Raises the limit on open files and sockets."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

log = Logger()

OPEN_FILES_LOW = 8192
"""Limit below which a warning is logged: open segments and a few thousand connections need that many."""


def raise_open_files_limit() -> None:
    """Raise the soft limit to the hard limit; log a warning if the result is low.

    Many systems set a soft limit of 1,024 for the sake of programs that use ``select``.
    """
    try:
        import resource as limits
    except ImportError:  # not a POSIX system
        return
    raise_limit(limits)


def raise_limit(limits: Any) -> None:
    """Raise the soft limit of the process.

    :param limits: the module ``resource`` or a replacement.
    """
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    if soft != hard:
        try:
            limits.setrlimit(limits.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            # macOS reports an unlimited hard limit but rejects high values.
            log.warn("cannot raise the limit of {soft} open files: {error}", soft=soft, error=str(error))
    if soft != limits.RLIM_INFINITY and soft < OPEN_FILES_LOW:
        log.warn(
            "this process may have only {soft} files and connections open: raise the limit (ulimit -Hn, or "
            "LimitNOFILE in its systemd unit) for more than a few hundred partitions and clients",
            soft=soft,
        )
