"""Linters of other projects find nothing in the files that are distributed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import COMPOSE, MANIFESTS

from tests.support.standalone import StandaloneProcess

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "tools"
GO_TOOLS = {
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool@v0.316.0",
}
COMPOSE_SPEC = "github.com/compose-spec/compose-go/v2@v2.9.0"
SPECTRAL = "@stoplight/spectral-cli@6.16.3"


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)


def program(name: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def go_tool(name: str) -> str:
    """Return the path of a program, which Go compiles if it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=TOOLS)
    if found is None:
        built = run(program("go"), "install", GO_TOOLS[name], env={**os.environ, "GOBIN": str(TOOLS)})
        assert built.returncode == 0, built.stderr
    return found or str(TOOLS / name)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("linters"), brokers=2) as started:
        yield started


def fetched(process: StandaloneProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"{process.admin_url}{path}") as response:
        body: bytes = response.read()
        return body


def test_containerfile() -> None:
    """hadolint has nothing to say about the Containerfile."""
    done = run(Path(sys.executable).with_name("hadolint"), "--no-color", ROOT / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_openapi_document(process: StandaloneProcess) -> None:
    """The description of the REST API satisfies the OpenAPI specification."""
    from openapi_spec_validator import validate

    validate(json.loads(fetched(process, "/openapi.json")))


@pytest.mark.soak
def test_openapi_rules(process: StandaloneProcess, tmp_path: Path) -> None:
    """Spectral finds no error and no warning in the description of the REST API."""
    (tmp_path / "openapi.json").write_bytes(fetched(process, "/openapi.json"))
    (tmp_path / "ruleset.json").write_text(json.dumps({"extends": "spectral:oas", "rules": SPECTRAL_RULES}))
    words = ("exec", "--yes", f"--package={SPECTRAL}", "--", "spectral", "lint", "--fail-severity=warn", "openapi.json")
    done = run(program("npm"), *words, "--ruleset", "ruleset.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


SPECTRAL_RULES = {
    "info-contact": "off",  # there is no address of the project
    "operation-tags": "off",  # paths group the operations
}


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_metrics(process: StandaloneProcess) -> None:
    """promtool accepts the names, types and help texts of all metrics."""
    done = run(go_tool("promtool"), "check", "metrics", input=fetched(process, "/metrics").decode())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_kubernetes_manifests(tmp_path: Path) -> None:
    """kubeconform accepts the manifests, with the schemas that kubernetes-validate contains."""
    import kubernetes_validate

    schemas = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    words = ("-strict", "-summary", "-schema-location", f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json")
    done = run(go_tool("kubeconform"), *words, *MANIFESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
def test_compose_file(tmp_path: Path) -> None:
    """The compose file satisfies the schema of the compose specification, from the module of its authors."""
    import jsonschema

    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    found = run(program("go"), "mod", "download", "-json", COMPOSE_SPEC, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    schema = Path(json.loads(found.stdout)["Dir"], "schema", "compose-spec.json")
    document = yaml.safe_load(COMPOSE.read_text())
    jsonschema.validate(document, json.loads(schema.read_text()))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_debian_package(tmp_path: Path) -> None:
    """lintian finds no error in the package."""
    lintian = program("lintian")
    built = run(sys.executable, ROOT / "packaging" / "deb.py", "--output", tmp_path)
    assert built.returncode == 0, built.stderr
    done = run(lintian, "--fail-on", "error", "--allow-root", "--no-tag-display-limit", built.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
