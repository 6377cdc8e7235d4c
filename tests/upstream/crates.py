"""Suites published in Rust crates: rdkafka's own, and librdkafka's C tests in rdkafka-sys."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suites import CACHE, Expected, SuiteUnavailable

RDKAFKA = "0.39.0"
"""Version of the crate that is fetched, with the version of rdkafka-sys below."""

_MANIFEST = f"""\
[package]
name = "fetched"
version = "0.1.0"
edition = "2021"

[dependencies]
rdkafka = "={RDKAFKA}"
rdkafka-sys = "=4.10.0"
"""

PORT_9092 = "expects a broker on port 9092 regardless of the configuration"
NO_ACLS = "the tested broker has no authorizer"


@dataclass(frozen=True)
class CrateSuite(Expected):
    """A suite in a crate.

    :param crate: name of the crate in the registry.
    :param sha256: checksum of the crate in the registry.
    """

    crate: str = field(kw_only=True)
    sha256: str = field(kw_only=True)

    @staticmethod
    def names(entry: str, test: str) -> bool:
        """Return True if an entry of ``not_passed`` equals the name: a name can be a prefix of another test's name."""
        return test == entry

    def failed(self, outcomes: Mapping[str, str]) -> list[str]:
        """Return the tests that do not pass and are not listed."""
        return [test for test, outcome in outcomes.items() if outcome != "passed" and self.reason(test) is None]

    def unpack(self, directory: Path) -> None:
        """Copy the crate to a new directory; Cargo downloads it and its dependencies once.

        :raise NotTheSuite: the crate is not available, or is not the pinned one.
        """
        source = _fetched() / self.crate
        recorded = json.loads((source / ".cargo-checksum.json").read_text())["package"]
        if recorded != self.sha256:
            raise SuiteUnavailable(f"the crate {self.crate} has the SHA-256 {recorded} instead of {self.sha256}")
        shutil.copytree(source, directory)


def _fetched() -> Path:
    kept = CACHE / f"crates-{RDKAFKA}"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as part:
            project = Path(part)
            (project / "src").mkdir()
            (project / "src" / "lib.rs").touch()
            (project / "Cargo.toml").write_text(_MANIFEST)
            command = ["cargo", "vendor", "--quiet", "crates"]
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode:
                raise SuiteUnavailable(f"the crate rdkafka {RDKAFKA} cannot be downloaded: {done.stderr[-2000:]}")
            (project / "crates").rename(kept)
    return kept


def rust_outcomes(output: str) -> dict[str, str]:
    """Return test -> "passed" or "failed", from the output of ``cargo test``."""
    outcomes: dict[str, str] = {}
    program = ""
    for line in output.splitlines():
        if found := re.match(r"\s+Running (?:unittests )?(\S+) ", line):
            program = found[1]
        elif found := re.match(r"test (\S+) \.\.\. (\w+)", line):
            outcomes[f"{program}::{found[1]}"] = "passed" if found[2] == "ok" else found[2].lower()
    return outcomes


RDKAFKA_SUITE = CrateSuite(
    project="rdkafka (Rust)",
    version=RDKAFKA,
    crate="rdkafka",
    sha256="d7956f9ac12b5712e50372d9749a3102f4810a8d42481c5eae3748d36d585bcf",
    test_count=50,
    passed_count=47,
    not_passed={
        "tests/test_high_producers.rs::test_future_producer_send": PORT_9092,
        "tests/test_high_producers.rs::test_future_producer_send_fail": PORT_9092,
        "tests/test_metadata.rs::test_metadata": PORT_9092,
    },
)

NO_SCRIPTS = "needs the shell scripts of an installed Apache Kafka"
RAPIDJSON = "needs the RapidJSON headers; skipped by the suite"
NO_TLS = "the tested broker has no listener with TLS or SASL; skipped by the suite"

LIBRDKAFKA_SUITE = CrateSuite(
    project="librdkafka",
    version="2.12.1",
    crate="rdkafka-sys",
    sha256="e234cf318915c1059d4921ef7f75616b5219b10b46e9f3a511a15eb4b56a3f77",
    test_count=95,
    passed_count=79,
    not_passed={
        "0052_msg_timestamps": NO_SCRIPTS,
        "0053_stats": RAPIDJSON,
        "0077_compaction": NO_SCRIPTS,
        "0081_admin": NO_ACLS,
        "0082_fetch_max_bytes": "omitted in the suite's quick mode",
        "0097_ssl_verify": NO_TLS,
        "0098_consumer_txn": RAPIDJSON,
        "0101_fetch_from_follower": RAPIDJSON,
        "0109_auto_create_topics": NO_SCRIPTS,
        "0110_batch_size": RAPIDJSON,
        "0115_producer_auth": NO_ACLS,
        "0119_consumer_auth": NO_ACLS,
        "0126_oauthbearer_oidc": NO_TLS,
        "0135_sasl_credentials": NO_TLS,
        "0142_reauthentication": NO_TLS,
        "0153_memberid": "tests KIP-848; the suite skips it for classic groups",
    },
)


def librdkafka_outcomes(output: str) -> dict[str, str]:
    """Return test -> "passed", or its state and the reason, from the table that the test runner prints at its end.

    Tests that need no broker are left out.
    """
    outcomes: dict[str, str] = {}
    for line in re.sub(r"\x1b(\[[0-9;]*m|\(B)", "", output).splitlines():
        if found := re.match(r"\| (\d{4}_\w+) +\| +([A-Z_]+) \| +[\d.]+s \| ?(.*)", line):
            name, state, reason = found.groups()
            if reason != "Filtered due to negative test flags":
                outcomes[name] = "passed" if state == "PASSED" else f"{state.lower()}: {reason}"
    return outcomes
