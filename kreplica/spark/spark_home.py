"""Spark's folder as PySpark brings it, without the zipped modules that each of its Python processes would compile anew.

Of a second that a worker takes to start, two thirds go; there is one for each kind of work, and one for each stream.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

ZIPPED = "python"


def unzipped_home(installed: Path, cache: Path) -> Path:
    """A folder of links to all that Spark has but its zipped modules: workers import those that are installed.

    :param installed: the folder of the package ``pyspark``.
    :param cache: where it is kept; made where it is absent.
    :raise OSError: it cannot be made.
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
        if not home.is_dir():  # another process was first
            raise
    return home
