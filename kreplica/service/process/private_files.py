"""Makes the files that the process creates accessible only to its user."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING

from twisted.logger import Logger

if TYPE_CHECKING:
    from kreplica.settings import BrokerSettings

log = Logger()

_SECRET = re.compile(r"password|secret|credential|(^|\.)token$|\.master\.key$|jaas")

OTHERS = 0o077
"""Permission bits of the group and of other users."""


def keep_files_private() -> None:
    """Set the umask so that files get mode 0600 and directories 0700: data, logs, sessions and sockets.

    ``twistd --umask`` is applied later, and can give a group read access to the data.
    """
    os.umask(os.umask(OTHERS) | OTHERS)


def warn_of_readable_secrets(config: str | None, settings: BrokerSettings) -> None:
    """Log a warning for each file that contains a secret and that every user of the machine may read.

    :param config: path of the settings file; None if there is no file.
    """
    in_config = any(_SECRET.search(name) for name in settings.configured_names)
    paths = [settings["kreplica.admin.token.file"], settings["kreplica.admin.tls.key.file"]]
    paths += [settings.get(name) for name in settings.configured_names if name.endswith("ssl.keystore.location")]
    warn_of_readable_files(filter(None, (config if in_config else None, *paths)))


def warn_of_readable_files(paths: Iterable[str]) -> None:
    """Log a warning for each of these files that every user of the machine may read."""
    for path in paths:
        if os.path.exists(path) and os.stat(path).st_mode & stat.S_IROTH:
            log.warn(
                "{path} contains a secret, and every user of this machine may read it: chmod 600 {path} "
                "(640 if it belongs to root and is read by a group)",
                path=path,
            )
