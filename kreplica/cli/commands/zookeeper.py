"""``kreplica zookeeper``: run a ZooKeeper server on this machine."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from types import FrameType

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.zookeeper.java_server import (
    DATA_DIRECTORY,
    LOG_FILE,
    ZooKeeperUnavailable,
    server_command,
    server_files,
)

START_TIME_S_MAX = 60.0
POLL_S = 0.05
OUTPUT_FILE = "output.log"
OUTPUT_CHARS_MAX = 2000

FLAGS = ("-Xmx512m",)
SETTINGS = {
    # The minimum session timeout is two ticks; with short timeouts, killed brokers are detected soon.
    "tickTime": 500,
    "maxSessionTimeout": 60_000,
    "maxClientCnxns": 0,
    "autopurge.snapRetainCount": 3,
    "autopurge.purgeInterval": 24,
}


@click.command(context_settings={"show_default": True})
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), default=Path("zookeeper-data"),
              help="Data directory; created if it does not exist.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=2181, help="Client port.")
@click.option("--interface", default="127.0.0.1", help="Address to listen on.")
def command(data_dir: Path, port: int, interface: str) -> None:
    """Run a ZooKeeper server on this machine until Ctrl-C is pressed.

    The server is for evaluation and small clusters.  Its data persists between runs.  It requires Java and PySpark,
    which includes the ZooKeeper server: pip install 'kreplica[spark]' installs both.
    """
    directory = data_dir.absolute()
    try:
        arguments = server_command(str(directory), FLAGS)
    except ZooKeeperUnavailable as error:
        raise CommandFailed(str(error)) from None
    _check_port_is_free(interface, port)
    _write_server_files(directory, interface, port)
    with (directory / OUTPUT_FILE).open("ab") as output:
        process = subprocess.Popen(arguments, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)  # fmt: skip
    received_signals = _stop_on_signals(process)
    if _wait_until_ready(process, interface, port):
        click.echo(f"ZooKeeper is listening on {interface}:{port}; its data is in {directory}.  Ctrl-C stops it.")
    status = process.wait()
    if not received_signals:
        raise CommandFailed(f"ZooKeeper exited with status {status}: {_error_output(directory)}")


def _check_port_is_free(interface: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in interface else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((interface, port))
        except OSError as error:
            reason = error.strerror
            raise CommandFailed(f"cannot listen on {interface}:{port}: {reason}; choose another --port") from None


def _write_server_files(directory: Path, interface: str, port: int) -> None:
    settings = {**SETTINGS, "clientPort": port, "clientPortAddress": interface}
    try:
        (directory / DATA_DIRECTORY).mkdir(parents=True, exist_ok=True)
        for name, text in server_files(str(directory), settings).items():
            (directory / name).write_text(text)
    except OSError as error:
        raise CommandFailed(f"cannot use --data-dir {directory}: {error.strerror}") from None


def _stop_on_signals(process: subprocess.Popen[bytes]) -> list[int]:
    """Stop the process on SIGINT and SIGTERM.

    :return: the received signals; the handlers append to this list.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        (process.terminate if len(received) == 1 else process.kill)()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return received


def _wait_until_ready(process: subprocess.Popen[bytes], interface: str, port: int) -> bool:
    """Wait until the server responds; return False if it exited, or was terminated after the start timeout."""
    deadline = time.monotonic() + START_TIME_S_MAX
    while process.poll() is None:
        if _responds(interface, port):
            return True
        if time.monotonic() > deadline:
            process.terminate()
        time.sleep(POLL_S)
    return False


def _responds(interface: str, port: int) -> bool:
    try:
        with socket.create_connection((interface, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return b"Mode: " in b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError:
        return False


def _error_output(directory: Path) -> str:
    """Return the errors in the server's output; if there are none, the end of the output."""
    for name in (OUTPUT_FILE, LOG_FILE):
        text = (directory / name).read_text(errors="replace") if (directory / name).exists() else ""
        if text.strip():
            lines = [line for line in text.splitlines() if "\tat " not in line]
            errors = [line for line in lines if "Exception" in line or "ERROR" in line] or lines
            text = "\n".join(dict.fromkeys(errors))[-OUTPUT_CHARS_MAX:]
            return f"{text}\n(complete output: {directory / name})"
    return "it wrote no output"
