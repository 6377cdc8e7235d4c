"""The extension module with the kernels: its selection, and its tests with sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica import __version__
from kreplica.wire import kernels
from tests.support.kernels import needs_kernels

pytestmark = needs_kernels

# --- selection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "shown"), [("no", "kernels in Python"), ("yes", "kernels in C")])
def test_version_and_variable(setting: str, shown: str) -> None:
    words = (sys.executable, "-m", "kreplica.cli", "--version")
    environment = {**os.environ, "KREPLICA_KERNELS": setting}
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == f"kreplica {__version__}"
    assert said[-1] == shown


def test_invalid_variable() -> None:
    with pytest.raises(ValueError, match="KREPLICA_KERNELS: 'off' is not yes or no"):
        kernels.load("off")


# --- sanitizers ------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]

SANITIZED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("kreplica.wire._kernels", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["kreplica.wire._kernels"] = module
import pytest
from hypothesis import settings
from kreplica.wire import kernels
settings.register_profile("slow", deadline=None)
settings.load_profile("slow")
assert kernels.read_rows is module.read_rows
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", "not memory", *sys.argv[2:]]))
"""
CHECKED = ("wire/test_wire_kernels.py", "wire/test_wire_read_records.py", "wire/test_wire_record_validation.py",
           "wire/test_wire_producer_batches.py", "storage/test_storage_append_run.py",
           "client/test_client_fetch_buffer.py", "spark/test_spark_decoding.py")  # fmt: skip


@pytest.mark.soak
@pytest.mark.needs_program("gcc")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """The comparisons above run with AddressSanitizer and UBSan, which end the process at an invalid access."""
    library = tmp_path / "_kernels.abi3.so"
    include = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-shared", "-fPIC", "-std=c11")
    sources = sorted((ROOT / "native").glob("*.c"))
    subprocess.run(["gcc", *flags, f"-I{include}", *map(str, sources), "-o", str(library)], check=True)
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # so that each object has its own memory, with guards around it
    }
    files = [str(ROOT / "tests" / name) for name in CHECKED]
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(library), *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
