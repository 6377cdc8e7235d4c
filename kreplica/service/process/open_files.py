"""How many files and sockets the process may have open."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

log = Logger()

OPEN_FILES_LOW = 8192
"""Below this a broker's own bound on open segments, with a few thousand connections, does not fit."""


def raise_open_files_limit() -> None:
    """Raise the soft limit to the hard one, which whoever runs the machine has set; say so where that is low.

    Many systems start processes with 1,024, so that programs that still use ``select`` do not break.
    """
    try:
        import resource as limits
    except ImportError:  # not a POSIX system
        return
    raise_limit(limits)


def raise_limit(limits: Any) -> None:
    """:param limits: the module ``resource``, or one that stands for it."""
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    if soft != hard:
        try:
            limits.setrlimit(limits.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            # macOS calls it unlimited, and takes no more than it likes.
            log.warn("the limit of open files stays {soft}: {error}", soft=soft, error=str(error))
    if soft != limits.RLIM_INFINITY and soft < OPEN_FILES_LOW:
        log.warn(
            "this process may have only {soft} files and connections open: raise the limit (ulimit -Hn, or "
            "LimitNOFILE in its systemd unit) for more than a few hundred partitions and clients",
            soft=soft,
        )
