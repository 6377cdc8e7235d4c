"""Ends the session that a killed broker left behind, so that its successor need not wait for it to expire.

A broker that is killed leaves its registration, and ``/controller`` where it held that, to a session that lives on for
its whole time-out.  The session's id and password stand in the log directory; who holds the directory's lock is the
broker's successor, and closes that session before it opens its own.
"""

from __future__ import annotations

import json
import os

from twisted.logger import Logger

from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.zookeeper import ZooKeeperClient, ZooKeeperError

log = Logger()

FILE_NAME = "zookeeper-session"


def remember_session(disk: Disk, directory: str, client: ZooKeeperClient, connect_string: str) -> None:
    """Write down the running session; called whenever a new one was established.

    Where that is not possible (a full disk) a successor has to wait, which is no reason to fail.
    """
    document = {
        "connect": connect_string,
        "session_id": client.session_id,
        "password": client.session_password.hex(),
    }
    path = os.path.join(directory, FILE_NAME)
    try:
        # Synced: a successor that cannot read it waits for the whole time-out of the session.
        disk.write_file(path, json.dumps(document).encode())
    except OSError as error:
        log.warn("{path} cannot be written: {error}", path=path, error=error)


async def end_previous_session(runtime: Runtime, directory: str, connect_string: str, *, timeout_ms: int) -> None:
    """Close the session that was remembered, where it is still open; whatever fails only costs time."""
    path = os.path.join(directory, FILE_NAME)
    try:
        document = json.loads(runtime.disk.read_file(path))
        resume = (int(document["session_id"]), bytes.fromhex(document["password"]))
        if document["connect"] != connect_string:
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warn("{path} cannot be read ({error}): waiting for the earlier session to expire", path=path, error=error)
        return
    client = ZooKeeperClient(
        runtime.reactor,
        connect_string,
        random=runtime.random,
        connection_timeout_ms=timeout_ms,
        resume=resume,
    )
    try:
        await client.start()
        log.info("closing the ZooKeeper session 0x{session:x} that a killed broker left", session=resume[0])
    except ZooKeeperError:
        pass  # it has ended already, which is what is wanted; or the server cannot be reached, which start tells
    await client.close()


def forget_session(disk: Disk, directory: str) -> None:
    """The session was closed in order; where its note stays on a device that fails, a successor finds it closed."""
    path = os.path.join(directory, FILE_NAME)
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warn("{path} cannot be removed: {error}", path=path, error=error)
