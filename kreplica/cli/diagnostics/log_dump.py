"""``kreplica log dump``: print the contents of log files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kreplica.cli.diagnostics.log_entries import Entry, UnreadableFile, read_entries
from kreplica.cli.diagnostics.log_lines import entry_line
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.terminal.screen import echo
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.storage.formats.checkpoints import PARTITION_METADATA


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="FILE_OR_DIR")
@click.option("--records", is_flag=True, help="Include the records of each batch.")
@click.option("--from-offset", type=click.IntRange(min=0), default=0, metavar="N",
              help="In .log files, skip batches that end before this offset.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of entries per file.")
@click.option("--full", is_flag=True, help="Do not shorten keys and values.")
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON.")
def command(path: Path, records: bool, from_offset: int, limit: int | None, full: bool, as_json: bool) -> None:
    """Print the entries of a .log, .index, .timeindex, .txnindex or .snapshot file, or of a checkpoint.

    If the argument is a partition directory, all its files are printed.  Files are not changed, and the broker may be
    running.

    The exit status is 1 if a file contains a malformed entry or a batch with a wrong checksum.
    """
    damaged = False
    for file in _files(path):
        if not as_json and path.is_dir():
            echo(f"{file}:")
        try:
            for entry in _limit(read_entries(ReadOnlyDisk(), str(file), records, from_offset), limit):
                damaged = damaged or entry.get("crc_valid") is False
                echo(json.dumps({"file": str(file), **entry}) if as_json else entry_line(entry, full=full))
        except UnreadableFile as error:
            damaged = True
            echo(f"kreplica: {file}: {error}", err=True)
        except FileNotFoundError:
            continue  # a running broker removes and renames files
        except OSError as error:
            raise CommandFailed(f"{file} cannot be read: {error.strerror}") from None
    raise SystemExit(1 if damaged else 0)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    names = sorted(name for name in os.listdir(path) if (path / name).is_file())
    if not any(name.endswith(".log") or name == PARTITION_METADATA for name in names):
        raise click.UsageError(f"{path} is not a partition directory: it has no .log file")
    yield from (path / name for name in names)


def _limit(entries: Iterator[Entry], limit: int | None) -> Iterator[dict[str, Any]]:
    """Yield at most ``limit`` entries, not counting records."""
    count = 0
    for entry in entries:
        count += entry["entry"] != "record"
        if limit is not None and count > limit:
            return
        yield entry
