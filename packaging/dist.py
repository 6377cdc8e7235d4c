"""Builds the wheels and the source distribution: ``make dist``, or ``python packaging/dist.py --output DIRECTORY``.

The files are reproducible: their bytes depend only on the source, the locked setuptools, the C compiler and
``SOURCE_DATE_EPOCH``, by default the time of the last commit.  The wheels are built from the source distribution: one
with the compiled kernels, for this platform and every Python from 3.11 on, and one without them, for all platforms.
Without a C compiler, only the latter is built.  A lock file next to them contains the hashes of the distributions and
of all dependencies.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("kreplica", "pyspark_kreplica", "twisted", "packaging", "etc", "systemd", "native", "LICENSE",
           "MANIFEST.in", "NEWS.md", "README.md", "pyproject.toml", "setup.cfg", "setup.py")  # fmt: skip
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "dropin.cache", "*.egg-info", "*~")
LOCK = ROOT / "packaging" / "requirements" / "broker.txt"
EARLIEST = 315532800
"""1980-01-01, the earliest time that a wheel can contain."""

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"


def build(output: Path) -> list[Path]:
    """Build all distributions and the lock file; return their paths, the most specific wheel first."""
    output.mkdir(parents=True, exist_ok=True)
    epoch = source_date_epoch()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        _copy_sources(source)
        sdist = _normalized(_run_backend("sdist", source, Path(scratch)), output, epoch)
        wheels = []
        for kernels in ("yes", "no"):
            with tarfile.open(sdist) as archive:
                # Python 3.11.2 (Debian 12) has no extraction filters and ignores the attribute.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(Path(scratch, kernels))
            (unpacked,) = Path(scratch, kernels).iterdir()
            _set_modes(unpacked)
            built = _run_backend("wheel", unpacked, Path(scratch, kernels), epoch, kernels)
            if kernels == "no" or _has_kernels(built):
                wheels.append(Path(shutil.copyfile(built, output / built.name)))
    name = sdist.name.removesuffix(".tar.gz")
    lock = output / f"{name}-requirements.txt"
    lock.write_text(LOCK.read_text() + _locked(name, (*wheels, sdist)))
    return [*wheels, sdist, lock]


def _has_kernels(wheel: Path) -> bool:
    """Return False if no C compiler was found."""
    with zipfile.ZipFile(wheel) as archive:
        return any(name.endswith(".so") for name in archive.namelist())


def source_date_epoch() -> int:
    """Return the time stamp of all files, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        words = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        given = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return max(int(given or EARLIEST), EARLIEST)


def _copy_sources(to: Path) -> None:
    """Copy the sources without the files of earlier builds, because setuptools would use their file lists."""
    to.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=IGNORED)
        else:
            shutil.copyfile(ROOT / name, to / name)
    words = [sys.executable, str(ROOT / "packaging" / "manual.py"), str(to / "share")]
    subprocess.run(words, check=True)  # manual pages and shell completion: data_files in setup.cfg
    _set_modes(to)


def _set_modes(directory: Path) -> None:
    """Set file modes that do not depend on the umask of the build process."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _run_backend(kind: str, source: Path, scratch: Path, epoch: int = EARLIEST, kernels: str = "no") -> Path:
    """Run setuptools in its own process; return the path of the distribution.

    :param kernels: ``no`` to build a wheel without the kernels.
    """
    directory = scratch / kind
    directory.mkdir()
    variables = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "KREPLICA_KERNELS": kernels}
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind=kind), str(directory)],
        cwd=source,
        env={**os.environ, **variables},
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"kreplica: setuptools cannot build the {kind}:\n{done.stdout}{done.stderr}")
    (found,) = directory.iterdir()
    return found


def _normalized(sdist: Path, output: Path, epoch: int) -> Path:
    """Rewrite a source distribution so that its members are sorted, belong to root and all have the same time."""
    path = output / sdist.name
    with (
        tarfile.open(sdist) as old,
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mode = 0o755 if member.isdir() else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return path


def _locked(name: str, files: tuple[Path, ...]) -> str:
    project, _, version = name.rpartition("-")
    hashes = [f"--hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return " \\\n    ".join((f"{project}=={version}", *hashes)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheels and the source distribution of this source.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "dist", help="directory (default: build/dist)")
    for path in build(parser.parse_args().output):
        print(path)


if __name__ == "__main__":
    main()
