"""The process of a cluster on this machine: command line, background start and shutdown."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from kreplica.cli.http.session import INTERRUPTED, CommandFailed
from kreplica.errors import SettingsError, reason_of
from kreplica.service.process.data_directories import make_data_directory
from kreplica.service.process.private_files import keep_files_private
from kreplica.service.process.process import EXIT_REASON_PREFIX
from kreplica.service.standalone.data_directory_lock import (
    READY,
    ClusterState,
    cluster_state,
    in_use_text,
    running_pid,
)

LOG_FILE = "kreplica.log"
OLD_LOG_FILE = "kreplica.log.1"
LOG_SIZE_MAX = 16 << 20
"""Size from which the next start rotates the log of a background cluster; only one old log is kept."""

REASON_SIZE_MAX = 64 << 10
REASON_LINES = 5
POLL_S = 0.05
PATIENCE_S = 10.0
"""Time after which ``wait_until_ready`` calls ``on_delay``."""

_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT}); "
    "from twisted.scripts.twistd import run; run()"
)
"""Program that the process runs. Until the reactor handles SIGINT, the signal ends it: Python's own handler would
raise ``KeyboardInterrupt`` in Twisted's search for plugins, which swallows exceptions."""


def standalone_command(words: Sequence[str]) -> list[str]:
    """Return the command line that runs ``twistd kreplica standalone`` in the foreground.

    :param words: the options of ``standalone``.
    """
    # -P: a file of the current directory must not replace a module.
    return [sys.executable, "-P", "-c", _PROGRAM, "-n", "--pidfile=", "kreplica", "standalone", *words]


def become_cluster(words: Sequence[str]) -> None:
    """Replace this process with the cluster; a SIGINT during the replacement is delivered afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, standalone_command(words))


class BackgroundCluster:
    """A cluster that a command has started in the background.

    :raise CommandFailed: the data directory cannot be used, or the process cannot be started.
    """

    def __init__(self, directory: Path, words: Sequence[str]) -> None:
        self.directory = directory
        self.log = directory / LOG_FILE
        keep_files_private()
        try:
            make_data_directory(str(directory))
            refuse_if_running(directory)
            _rotate(self.log)
            with self.log.open("ab") as output:
                self._log_start = output.tell()
                self._process = subprocess.Popen(standalone_command(words), stdin=subprocess.DEVNULL, stdout=output,
                                                 stderr=output, start_new_session=True)  # fmt: skip
        except SettingsError as error:
            raise CommandFailed(str(error)) from None
        except OSError as error:
            raise CommandFailed(f"the cluster cannot be started: {reason_of(error, with_path=True)}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self, on_delay: Callable[[], None]) -> ClusterState:
        """Wait until the brokers serve clients; Ctrl-C stops the cluster.

        :param on_delay: called once if the start takes more than ``PATIENCE_S``.
        :raise CommandFailed: the process exited; the message contains the reason from its log.
        """
        started_s = time.monotonic()
        was_delayed = False
        try:
            while self._process.poll() is None:
                if running_pid(self.directory) == self.pid:
                    state = cluster_state(self.directory, self.pid)
                    if state.state == READY:
                        return state
                if not was_delayed and time.monotonic() - started_s > PATIENCE_S:
                    was_delayed = True
                    on_delay()
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            self._process.terminate()
            self._process.wait()
            click.echo("kreplica: interrupted: the cluster was stopped", err=True)
            raise SystemExit(INTERRUPTED) from None
        raise CommandFailed(self._reason())

    def _reason(self) -> str:
        """Return the reason that the process logged for its exit; if there is none, the last lines of its log."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - REASON_SIZE_MAX))
            lines = file.read(REASON_SIZE_MAX).decode(errors="replace").splitlines()
        reasons = [line.removeprefix(EXIT_REASON_PREFIX) for line in lines if line.startswith(EXIT_REASON_PREFIX)]
        last_lines = ["the cluster exited; last lines of its log:", *lines[-REASON_LINES:]]
        text = reasons[-1] if reasons else "\n".join(last_lines)
        return f"{text}\n(complete log: {self.log})"


def refuse_if_running(directory: Path) -> None:
    """Check that no cluster is running in a data directory.

    :raise CommandFailed: a cluster is running; the message names its process.
    """
    pid = pid_of_cluster(directory)
    if pid is not None:
        raise CommandFailed(in_use_text(directory, pid))


def pid_of_cluster(directory: Path) -> int | None:
    """Return the process ID of the cluster that is running in a data directory; None if there is none.

    :raise CommandFailed: the directory cannot be read.
    """
    try:
        return running_pid(directory)
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be read: {error.strerror}") from None


def end_process(directory: Path, pid: int, timeout_s: float) -> bool:
    """Send SIGTERM to a running cluster, and return True if it exited in time.

    :param pid: result of ``running_pid``.
    :raise CommandFailed: the process belongs to another user.
    """
    try:
        # The descriptor refers to the same process even if its ID is reused.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if running_pid(directory) != pid:
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a suspended process handles SIGTERM only when continued
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    except ProcessLookupError:
        return True
    except PermissionError:
        raise CommandFailed(f"process {pid} belongs to another user: only that user or root can stop it") from None
    finally:
        os.close(descriptor)


def _rotate(log: Path) -> None:
    try:
        if log.stat().st_size >= LOG_SIZE_MAX:
            log.replace(log.with_name(OLD_LOG_FILE))
    except FileNotFoundError:
        pass
