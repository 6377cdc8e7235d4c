"""Metrics of the process and its disks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kreplica import __version__
from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime import Runtime
from kreplica.runtime.interpreter import interpreter
from kreplica.runtime.process_usage import process_usage
from kreplica.service.metrics.disk_usage import read_usage
from kreplica.service.metrics.metric_families import counter, gauge
from kreplica.storage.directories.log_directory import LogDirectory


def process_families() -> Iterator[Family]:
    """Yield process metrics, named as in Prometheus client libraries; brokers in one process report the same values."""
    usage = process_usage()
    yield counter("process_cpu_seconds", "User and system CPU time.", usage.cpu_s)
    yield gauge("process_resident_memory_bytes", "Resident memory.", usage.resident_bytes)
    if usage.open_files is not None:
        yield gauge("process_open_fds", "Open file descriptors.", usage.open_files)
    running = interpreter()
    yield Family(
        "kreplica_build_info",
        Kind.GAUGE,
        "Always 1: version of kreplica, and of Python and whether it was compiled with profile-guided optimization.",
        ("version", "python", "python_optimized"),
        [Sample((__version__, running.version, str(running.optimized).lower()), 1.0)],
    )


async def directory_families(runtime: Runtime, directories: Sequence[LogDirectory]) -> list[Family]:
    """Return the size, free space and state of each log directory."""
    online = [directory.path for directory in directories if directory.offline is None]
    usage_by_path = await read_usage(runtime, online)
    rows = (
        ("online", "1 if a log directory is online.", [(each.path, each.path in online) for each in directories]),
        (
            "total_bytes",
            "Size of the disk of a log directory.",
            [(path, total) for path, (total, _) in usage_by_path.items()],
        ),
        (
            "usable_bytes",
            "Free space on the disk of a log directory.",
            [(path, usable) for path, (_, usable) in usage_by_path.items()],
        ),
    )
    return [
        Family(
            f"kreplica_log_directory_{name}",
            Kind.GAUGE,
            text,
            ("directory",),
            [Sample((path,), float(value)) for path, value in values],
        )
        for name, text, values in rows
    ]
