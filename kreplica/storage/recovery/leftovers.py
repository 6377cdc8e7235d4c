"""Completes or undoes an interrupted deletion or compaction in a log's directory.

Compaction writes ``BASE.log.cleaned``, syncs it, renames it to ``.swap``, removes the replaced segments, and renames it
to its final name. A ``.cleaned`` file is therefore incomplete and is deleted; a ``.swap`` file is complete and replaces
every segment in its range.
"""

from __future__ import annotations

from kreplica.runtime.disk import Disk
from kreplica.storage.formats.batch_scanning import scan_headers
from kreplica.storage.segments.segment import LOG_SUFFIX, SUFFIXES, segment_path
from kreplica.storage.segments.segment_list import DELETED_SUFFIX, remove_files

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_INDEX_SUFFIXES = SUFFIXES[1:4]


def clear_leftovers(disk: Disk, directory: str) -> list[str]:
    """Complete or undo interrupted operations, so that only files with final names remain.

    :return: the names of these files.
    """
    names = disk.list_directory(directory)
    incomplete = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"))]
    cleaned = [base for name in incomplete if (base := _base_of(name, CLEANED_SUFFIX)) is not None]
    # A compaction may produce several segments, renamed to .swap from last to first; those after a .cleaned one are
    # incomplete results.
    unfinished = [name for name in names if cleaned and (_base_of(name, SWAP_SUFFIX) or -1) >= min(cleaned)]
    remove_files(disk, [f"{directory}/{name}" for name in (*incomplete, *unfinished)])
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX) and name not in unfinished]
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _drop_replaced(disk, directory, name)
    for name in sorted(swaps, key=lambda name: name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    if swaps:
        disk.sync_directory(directory)
    if incomplete or swaps:
        names = disk.list_directory(directory)
    return _without_orphans(disk, directory, names)


def _base_of(name: str, suffix: str) -> int | None:
    stem = name.split(".", 1)[0]
    return int(stem) if name.endswith(suffix) and stem.isdecimal() else None


def _drop_replaced(disk: Disk, directory: str, swap: str) -> None:
    """Remove the segments whose records are in a ``.swap`` file."""
    file = disk.open(f"{directory}/{swap}")
    first = _base_of(swap, SWAP_SUFFIX) or 0
    end = max((header.next_offset for _, header in scan_headers(file, 0, file.size())), default=first + 1)
    file.close()
    for name in disk.list_directory(directory):
        base = _base_of(name, LOG_SUFFIX)
        if base is not None and first <= base < end:
            remove_files(disk, [segment_path(directory, base, suffix) for suffix in SUFFIXES])


def _without_orphans(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Remove index files without a segment, and return the names of the other files."""
    bases = {name.split(".", 1)[0] for name in names if name.endswith(LOG_SUFFIX)}
    orphans = {name for name in names if name.endswith(_INDEX_SUFFIXES) and name.split(".", 1)[0] not in bases}
    remove_files(disk, [f"{directory}/{name}" for name in names if name in orphans])
    return [name for name in names if name not in orphans]
