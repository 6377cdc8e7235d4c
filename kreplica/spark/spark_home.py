"""A Spark home without PySpark's zipped modules, which every Python worker would compile again.

Zipped modules take two thirds of the one second in which a worker starts. Spark starts a worker for each kind of work
and for each stream.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

ZIPPED = "python"


def unzipped_home(installed: Path, cache: Path) -> Path:
    """Create a directory of links to a Spark installation without its zipped modules, so that workers import the
    installed ones.

    :param installed: directory of the package ``pyspark``.
    :param cache: directory to create the links in; created if absent.
    :raise OSError: the directory cannot be created.
    """
    names = sorted(each.name for each in installed.iterdir() if each.name != ZIPPED)
    mark = hashlib.sha256("\n".join([str(installed), *names]).encode()).hexdigest()[:16]
    home = cache / f"spark-{mark}"
    if home.is_dir():
        return home
    made = cache / f"{home.name}.{os.getpid()}"
    made.mkdir(parents=True)
    try:
        for name in names:
            (made / name).symlink_to(installed / name)
        made.rename(home)
    except OSError:
        shutil.rmtree(made)
        if not home.is_dir():  # another process created it first
            raise
    return home
