"""Closes the ZooKeeper session of a killed broker, so that its successor need not wait for the session timeout.

The session of a killed broker keeps its registration, and possibly ``/controller``, until it expires. Its id and
password are stored in the log directory. The process that holds the directory's lock closes that session before opening
its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

from twisted.logger import Logger

from kreplica.runtime.disk import Disk
from kreplica.zookeeper import ZooKeeperClient, ZooKeeperError

log = Logger()

FILE_NAME = "zookeeper-session"
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d+")


def remember_session(disk: Disk, directory: str, client: ZooKeeperClient, connect_string: str) -> None:
    """Store the id and password of the current session; called for each new session.

    A failure (full disk) is only logged: the successor then waits for the session timeout.
    """
    document = {
        "connect": connect_string,
        "session_id": client.session_id,
        "password": client.session_password.hex(),
    }
    path = os.path.join(directory, FILE_NAME)
    try:
        # Synced, because a successor that cannot read it waits for the session timeout.
        disk.write_file(path, json.dumps(document).encode())
    except OSError as error:
        log.warn("cannot write {path}: {error}", path=path, error=error)


async def end_previous_session(
    disk: Disk, directory: str, connect_string: str, new_client: Callable[[tuple[int, bytes]], ZooKeeperClient]
) -> None:
    """Close the stored session if it is still open; after a failure, the start takes longer.

    :param new_client: creates a client of these servers that resumes the session with a given ID and password.
    """
    path = os.path.join(directory, FILE_NAME)
    try:
        document = json.loads(disk.read_file(path))
        resume = (int(document["session_id"]), bytes.fromhex(document["password"]))
        if not _are_same_servers(document["connect"], connect_string):
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warn("cannot read {path} ({error}): waiting for the earlier session to expire", path=path, error=error)
        return
    client = new_client(resume)
    try:
        await client.start()
        log.info("closing the ZooKeeper session 0x{session:x} of a killed broker", session=resume[0])
    except ZooKeeperError:
        pass  # already ended, or ZooKeeper is unreachable, which is reported later in the start
    await client.close()


def _are_same_servers(before: str, now: str) -> bool:
    """Return True if a session can exist on the servers of both connect strings.

    On loopback the port may differ, because the port of the embedded server is an option of each start. If a different
    server uses the new port, it rejects the session.
    """
    return before == now or all(_LOOPBACK.fullmatch(connect_string) for connect_string in (before, now))


def forget_session(disk: Disk, directory: str) -> None:
    """Remove the stored session after an orderly close; if that fails, a successor finds it closed."""
    path = os.path.join(directory, FILE_NAME)
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warn("cannot remove {path}: {error}", path=path, error=error)
