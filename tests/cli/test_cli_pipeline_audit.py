"""``kreplica pipeline audit`` without Spark: text, JSON and HTML output, and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kreplica.cli import main
from kreplica.cli.pipelines import pipeline_audit
from kreplica.cli.pipelines.audit_page import audit_page
from kreplica.spark.pipelines.audit import audit as audit_module
from kreplica.spark.pipelines.audit.audit import AuditOptions
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Kind
from kreplica.spark.pipelines.audit.report import AuditReport

Run = Callable[..., Result]

GOOD = "orders<b>"


def report(*, differences: int = 0, is_empty: bool = False) -> AuditReport:
    """Return a report about an empty partition, and one with three replicas, including one that is behind."""
    comparison = Comparison(GOOD, 2, 10, 1000)
    if not is_empty:
        comparison.coverages += [
            Coverage(each, 10, 900 if each == 3 else 1000, 50, 4096, each == 3) for each in (1, 2, 3)
        ]
    for each in range(differences):
        kind = list(Kind)[each % len(Kind)]
        comparison.add(1 + each % 3, 10 + each, kind, f"why <script>{each}</script>")
    return AuditReport(
        "files", "c-1", (1, 2, 3), (comparison, Comparison("empty", 0, 0, 0)), ("a <note>",), 1, 0, 12288, 2.0
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs the command with a scripted audit result."""
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def no_spark(*_: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(pipeline_audit, "open_spark", no_spark)

    def run_command(
        *words: str, audit_report: AuditReport | None = None, requested: list[AuditOptions] | None = None
    ) -> Result:
        def audit(_: None, options: AuditOptions, __: object) -> AuditReport:
            if requested is not None:
                requested.append(options)
            return audit_report or report()

        monkeypatch.setattr(audit_module, "audit", audit)
        return CliRunner().invoke(main, ["pipeline", "audit", *words])

    return run_command


def test_replicas_agree(run: Run) -> None:
    """If replicas agree, the exit status is 0, and the output shows a line per broker and a conclusion."""
    result = run("--log-dirs", "/a,/b")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "No differences."
    assert lines[2].split() == ["BROKER", "REPLICAS", "BATCHES", "READ", "BEHIND", "OTHERS", "DIFFERENCES"]
    assert lines[5].split() == ["3", "1", "50", "4.0", "KiB", "1", "0"]
    assert lines[-1] == "the replicas of 1 partition agree below the high watermark"
    assert "note: a <note>" in lines


def test_differences(run: Run) -> None:
    """If replicas differ, the exit status is 1, and the output shows a limited number of differences."""
    result = run("--log-dirs", "/a", audit_report=report(differences=60))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "OFFSET", "BROKER", "KIND", "DETAIL"]
    assert lines[1].split() == [GOOD, "2", "10", "1", "damaged", "why", "<script>0</script>"]
    assert "... and 10 more; --json and --html list them" in lines
    assert lines[-1] == "60 differences, in 1 of 2 partitions"


def test_nothing_was_compared(run: Run) -> None:
    """If nothing was compared, which proves nothing, the exit status is 1."""
    result = run("--log-dirs", "/a", audit_report=report(is_empty=True))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "nothing was compared"


def test_json(run: Run) -> None:
    result = run("--log-dirs", "/a", "--json", audit_report=report(differences=1))
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["agrees"], document["difference_count"], document["batches"]) == (False, 1, 150)
    assert document["partitions"][0]["differences"] == [
        {"topic": GOOD, "partition": 2, "base_offset": 10, "broker": 1, "kind": "damaged",
         "detail": "why <script>0</script>"}
    ]  # fmt: skip
    assert document["partitions"][0]["coverages"][2]["is_short"]


def test_options(run: Run) -> None:
    """Options are passed to the audit."""
    requested: list[AuditOptions] = []
    words = ["--log-dirs", "1=/a/,/b", "--log-dirs", "/c", "--log-dirs", "1=/d", "orders", "pay", "--compacted", "x, y"]
    assert run(*words, "--resume", "work", "--bootstrap", "h:1", requested=requested).exit_code == 0
    assert run("--via-brokers", "--bootstrap", "h:1", requested=requested).exit_code == 0
    assert requested == [
        AuditOptions(log_dirs=("/c",), log_dirs_of={1: ("/a", "/b", "/d")}, bootstrap="h:1",
                     topics=frozenset({"orders", "pay"}), compacted=frozenset({"x", "y"}), resume=Path("work")),
        AuditOptions(bootstrap="h:1", via_brokers=True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify --log-dirs, or --via-brokers"),
        (["--via-brokers"], "--via-brokers requires --bootstrap"),
        (["--via-brokers", "--bootstrap", "h:1", "--log-dirs", "/a"], "cannot be combined"),
        (["--log-dirs", "1="], "BROKER=DIRECTORY"),
        (["--log-dirs", "/a,,/b"], "BROKER=DIRECTORY"),
        (["--log-dirs", "/"], "BROKER=DIRECTORY"),
        (["--log-dirs", "/a", "--conf", "x"], "is not NAME=VALUE"),
    ],
)
def test_invalid_arguments(run: Run, words: list[str], message: str) -> None:
    """Invalid arguments are usage errors that name the expected value."""
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_page_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """If the page cannot be written, the error is one line."""
    result = run("--log-dirs", "/a", "--html", str(tmp_path / "no" / "page.html"))
    assert result.exit_code == 1
    assert "page.html cannot be written" in result.stderr


class Page(HTMLParser):
    """Elements of an HTML page."""

    EMPTY = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("audit_report", [report(), report(differences=9), report(is_empty=True)])
def test_html_page(run: Run, tmp_path: Path, audit_report: AuditReport) -> None:
    """The page is one file without references to other servers, and has all data as text and tables too."""
    path = tmp_path / "page.html"
    result = run("--log-dirs", "/a", "--html", str(path), audit_report=audit_report)
    assert result.exit_code == (0 if audit_report.agrees else 1)
    text = path.read_text()
    page = Page(text)
    assert page.all("html") == [{"lang": "en"}]
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert all(value is None or "//" not in value for _, attributes in page.tags for value in attributes.values())
    assert "url(" not in text
    assert "@import" not in text
    assert len(page.all("h1")) == 1
    charts = [each for each in page.all("svg") if each.get("aria-hidden") != "true"]
    assert len(charts) == (3 if audit_report.differences else 2)
    assert all(each["role"] == "img" and each["aria-label"] for each in charts)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(each.get("scope") in ("col", "row") for each in page.all("th"))
    if audit_report.differences:
        assert "why <script>8</script>" in page.texts
        assert GOOD in page.texts


def test_large_page_is_bounded() -> None:
    """A large page shows only the first partitions and differences, and the total numbers."""
    partitions = []
    for number in range(3000):
        comparison = Comparison("t", number, 0, 1000, [Coverage(1, 0, 1000, 1, 100, False)])
        for offset in range(3):
            comparison.add(1, offset, Kind.MISSING, "gone")
        partitions.append(comparison)
    text = audit_page(AuditReport("brokers", None, (1,), tuple(partitions), (), 0, 0, 1, 1.0))
    assert len(text) < 2_000_000
    assert "The first 2,000 of 9,000." in text
    assert "The other 2,960 are in the table" in text
