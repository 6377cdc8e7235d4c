"""Runs ``make run`` and ``make test`` on a fresh Debian 12: ``python tests/fresh/fresh_machine.py``, or ``make fresh``.

debootstrap makes the smallest Debian, and apt adds python3.11, python3.11-venv, make and git. The last commit of this
repository is cloned there twice, each time into a folder named ``kreplica``:

* for an ordinary user, shallow, below a directory with a space in its name, with another time zone and umask and the C
  locale; no program of the tests is installed, so tests are skipped by name
* for root, with ``CI`` set: ``make test`` installs the programs, and none may be missing

It needs root and debootstrap. Everything runs in its own mount and process namespaces, which end with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
PACKAGES = ("python3.11", "python3.11-venv", "make", "git")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_VARIABLES = re.compile(
    r"PIP_(?!FIND_LINKS|CACHE_DIR)\w+|(?i:\w+_proxy)|(SSL_CERT|REQUESTS_CA|CURL_CA)_(FILE|BUNDLE)"
)
"""Environment variables for access to package indexes; the files that they name are copied."""

HOST_FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/pip.conf")
APT_SETTINGS = re.compile(r"^Acquire::(?:https?|Check-|Retries).* \".*\";$", re.MULTILINE)
READY_S_MAX, TEST_S_MAX = 600, 7200
BANNER = " is ready\n"


class Account(NamedTuple):
    """The account that runs ``make``, and its environment.

    :param home: the directory into which the repository is cloned.
    :param clone: additional arguments of ``git clone``.
    """

    name: str
    user: str
    home: str
    clone: tuple[str, ...]
    environment: dict[str, str]
    umask: str


ACCOUNTS = {
    "user": Account(
        "user",
        "tester",
        "/home/tester/a folder",
        ("--depth", "1"),
        {"LC_ALL": "C", "TZ": "Pacific/Auckland"},
        "077",
    ),
    "root": Account("root", "root", "/root", (), {"CI": "true"}, "022"),
}


class Result(NamedTuple):
    """Results of one account."""

    account: str
    ready_s: float
    test_s: float
    exit_status: int
    last_lines: list[str]


class Machine:
    """A Debian in a directory, with namespaces in which commands run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._environment = {name: value for name, value in os.environ.items() if PASSED_VARIABLES.fullmatch(name)}

    def make(self) -> None:
        """Install Debian and the required packages, with the host's access to package indexes."""
        say(f"debootstrap --variant=minbase {SUITE}")
        run_checked(["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(self.path)])
        self._copy_settings()

    def add_packages(self) -> None:
        """Install the packages that a user needs to try kreplica, and add an ordinary account."""
        say(f"apt-get install {' '.join(PACKAGES)}")
        words = f"apt-get -qq update && apt-get -qq install --yes --no-install-recommends {' '.join(PACKAGES)}"
        run_checked(self.command("root", {"DEBIAN_FRONTEND": "noninteractive"}, words))
        run_checked(self.command("root", {}, "useradd --create-home --shell /bin/bash tester"))

    def _copy_settings(self) -> None:
        named = [value for value in self._environment.values() if Path(value).is_file()]
        for file in (*HOST_FILES, *named):
            if Path(file).is_file():
                target = self.path / file.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                shutil.copyfile(file, target)
        apt = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
        (self.path / "etc/apt/apt.conf.d/99host").write_text("\n".join(APT_SETTINGS.findall(apt)) + "\n")

    def clone(self, account: Account) -> None:
        """Clone the last commit of this repository, owned by the account."""
        target = self.path / account.home.lstrip("/") / "kreplica"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        run_checked(["git", "clone", "--quiet", *account.clone, f"file://{ROOT}", str(target)])
        run_checked(self.command("root", {}, f"chown -R {account.user}: '{account.home}'"))

    def command(self, user: str, environment: dict[str, str], words: str) -> list[str]:
        """Return a command that runs a shell line on the machine, and whose end kills all processes that it started."""
        given = {"PATH": PATH, "HOME": "/root", **self._environment, **environment}
        inside = ["chroot", str(self.path), "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in given.items())]
        inside += ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "/bin/bash", "-c", words]
        # The root of the new system must be a mount point, because `ip netns exec` remounts it.
        mounts = (
            'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" '
            '&& mount --rbind /dev "$0/dev" && exec "$@"'
        )
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation", "private"]
        return [*unshare, "/bin/sh", "-c", mounts, str(self.path), *inside]

    def in_clone(self, account: Account, words: str) -> list[str]:
        """Return the command that runs a line of shell in the account's clone."""
        environment = {"HOME": str(Path(account.home).parent) if account.user != "root" else "/root"}
        line = f"umask {account.umask}; cd '{account.home}/kreplica' && exec {words}"
        return self.command(account.user, environment | account.environment, line)


def try_account(machine: Machine, account: Account, arguments: str) -> Result:
    """Clone the repository, start a broker and run the tests.

    :param arguments: pytest arguments that select a part of the tests; all tests if empty.
    """
    say(f"{account.name}: git clone {' '.join(account.clone)} to {account.home}/kreplica")
    machine.clone(account)
    ready_s = time_to_ready(machine, account)
    say(f"{account.name}: make run was ready after {ready_s:.1f} s, installation included")
    words = f"make test ARGS='{arguments}'" if arguments else "make test"
    lines: list[str] = []
    started = time.monotonic()
    with running(machine.in_clone(account, words), TEST_S_MAX) as process:
        for line in process.stdout or ():
            print(f"  {account.name}: {line}", end="", flush=True)
            lines.append(line.rstrip("\n"))
    return Result(account.name, ready_s, time.monotonic() - started, process.returncode, lines[-3:])


def time_to_ready(machine: Machine, account: Account) -> float:
    """Run ``make run`` on free ports until its banner and the admin address say that it is ready, then interrupt it.

    :return: seconds from the command to the banner.
    :raise RuntimeError: the command ended before the banner, or did not stop cleanly.
    """
    port, admin, coordinator = free_ports(3)
    words = f"make run ARGS='--port {port} --admin-port {admin} --zookeeper-port {coordinator}'"
    started = time.monotonic()
    with running(machine.in_clone(account, words), READY_S_MAX) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.endswith(BANNER):
                break
        else:
            raise RuntimeError(f"make run ended with {process.wait()}:\n{''.join(printed)}")
        ready_s = time.monotonic() - started
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/health/ready", timeout=10) as answer:
            assert answer.status == 200
        interrupt_broker(process.pid)
        rest = process.stdout.read()
    # make reports the interrupt in its exit status.
    if "Traceback" in rest or " stopped" not in rest:
        raise RuntimeError(f"make run did not stop cleanly after Ctrl-C:\n{rest}")
    return ready_s


@contextmanager
def running(command: Sequence[str], seconds_max: float) -> Iterator[subprocess.Popen[str]]:
    """Run a process that is killed, with all processes that it started, after an error or a timeout."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        timer = threading.Timer(seconds_max, process.kill)
        timer.start()
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            timer.cancel()


def interrupt_broker(pid: int) -> None:
    """Send SIGINT to the innermost process, as Ctrl-C does: the broker, below unshare, make and perhaps a shell."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    os.kill(pid, signal.SIGINT)


def free_ports(count: int) -> list[int]:
    """Return loopback ports that are free at the time of the call."""
    with_sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in with_sockets]
    for each in with_sockets:
        each.close()
    return ports


@contextmanager
def machine_in(directory: Path | None, keep: bool) -> Iterator[Machine]:
    """Create a machine in this directory or below ``/tmp``, and remove it afterwards unless ``keep`` is set."""
    path = directory or Path(tempfile.mkdtemp(prefix="kreplica-fresh-", dir="/tmp"))
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)
    try:
        yield Machine(path)
    finally:
        # The mounts ended with their namespaces; a directory that is still a mount point is left alone.
        if keep or str(path) in Path("/proc/mounts").read_text():
            say(f"left in {path}")
        else:
            shutil.rmtree(path)


def run_checked(command: Sequence[str]) -> None:
    """Run a command.

    :raise RuntimeError: the command failed; the message is the end of its output.
    """
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")


def say(text: str) -> None:
    print(f"fresh machine: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run make run and make test on a fresh Debian 12.")
    parser.add_argument("accounts", nargs="*", help=f"which of {', '.join(ACCOUNTS)} (default: all, in this order)")
    parser.add_argument("--directory", type=Path, help="directory of the machine; an existing machine is used again")
    parser.add_argument("--keep", action="store_true", help="do not remove the machine afterwards")
    parser.add_argument("--tests", default="", help="arguments for pytest, such as the files to run")
    arguments = parser.parse_args()
    if unknown := set(arguments.accounts) - set(ACCOUNTS):
        parser.error(f"no account is named {', '.join(sorted(unknown))}")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("fresh machine: this needs root and debootstrap (Debian: apt install debootstrap)")
    commit = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%h %s"], capture_output=True, text=True)
    say(f"commit {commit.stdout.strip()}; changes that are not committed are left out")
    # A shell that starts this script in the background makes it ignore SIGINT, and the broker would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = []
    with machine_in(arguments.directory, arguments.keep) as machine:
        if not (machine.path / "home/tester").is_dir():
            machine.make()
            machine.add_packages()
        for name in arguments.accounts or ACCOUNTS:
            found.append(try_account(machine, ACCOUNTS[name], arguments.tests))
    for result in found:
        say(
            f"{result.account}: make run ready after {result.ready_s:.1f} s; make test ended with "
            f"{result.exit_status} after {result.test_s:.0f} s"
        )
        for line in result.last_lines:
            print(f"    {line}")
    sys.exit(any(result.exit_status for result in found))


if __name__ == "__main__":
    main()
