"""A Spark home without PySpark's zipped modules, which every Python worker would have to compile again.

A worker takes one second to start, two thirds of it for the zipped modules. Spark starts a worker for each kind of task
and for each stream.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

ZIPPED = "python"


def unzipped_home(installed: Path, cache: Path) -> Path:
    """Return a directory of links to a Spark installation without its zipped modules, so that workers import the
    installed ones; created on the first call.

    :param installed: directory of the package ``pyspark``.
    :param cache: directory in which to create the links; created if absent.
    :raise OSError: the directory cannot be created.
    """
    names = sorted(each.name for each in installed.iterdir() if each.name != ZIPPED)
    mark = hashlib.sha256("\n".join([str(installed), *names]).encode()).hexdigest()[:16]
    home = cache / f"spark-{mark}"
    if home.is_dir():
        return home
    temporary = cache / f"{home.name}.{os.getpid()}"
    temporary.mkdir(parents=True)
    try:
        for name in names:
            (temporary / name).symlink_to(installed / name)
        temporary.rename(home)
    except OSError:
        shutil.rmtree(temporary)
        if not home.is_dir():  # another process created it first
            raise
    return home
