"""Linters of other projects find nothing in the files that are distributed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import COMPOSE, KUBERNETES, MANIFESTS, documents

from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from tests.support.standalone import StandaloneProcess

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "tools"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
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


def kubeconform() -> str:
    """Return the path of kubeconform, which Go compiles if it is not installed."""
    found = shutil.which("kubeconform") or shutil.which("kubeconform", path=TOOLS)
    if found is None:
        built = run(program("go"), "install", KUBECONFORM, env={**os.environ, "GOBIN": str(TOOLS)})
        assert built.returncode == 0, built.stderr
    return found or str(TOOLS / "kubeconform")


def promtool() -> str:
    """Return the path of promtool, from Debian's package if it is not installed.

    The package is only unpacked: its installation would start a server.
    """
    found = shutil.which("promtool") or shutil.which("promtool", path=TOOLS / "usr" / "bin")
    if found is None:
        TOOLS.mkdir(parents=True, exist_ok=True)
        if run(program("apt-get"), "download", "prometheus", cwd=TOOLS).returncode:
            pytest.skip("promtool is not installed, and apt cannot download the package prometheus")
        (package,) = TOOLS.glob("prometheus_*.deb")
        assert run("dpkg-deb", "--extract", package, TOOLS).returncode == 0
    return found or str(TOOLS / "usr" / "bin" / "promtool")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("linters")) as started:
        yield started


def fetched(process: StandaloneProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"{process.admin_url}{path}") as response:
        body: bytes = response.read()
        return body


def test_containerfile() -> None:
    """hadolint finds no problem in the Containerfile."""
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
    "operation-description": "off",  # the summaries are sufficient
    "info-contact": "off",  # there is no address of the project
}


def test_names_of_metrics() -> None:
    """Every metric follows promtool's naming rules, even metrics that a small cluster does not have."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    found = re.findall(r"^\| `([a-z0-9_]+)` \| (counter|gauge|histogram|summary) \|", page, re.MULTILINE)
    assert len(found) > 50
    for name, kind in found:
        assert kind in ("histogram", "summary") or not name.endswith(("_count", "_sum", "_bucket")), name
        assert kind == "counter" or not name.endswith("_total"), name
        assert "__" not in name


@pytest.mark.soak
def test_metrics(process: StandaloneProcess) -> None:
    """promtool accepts the names, types and help texts of the metrics of a broker with a group."""
    with Cluster(process.bootstrap_servers) as cluster:
        create_topic(cluster, "orders", 2, 1)
        with Producer(cluster) as producer:
            producer.send("orders", b"two coffees")
    words = ("group", "reset", "kitchen", "--topic", "orders", "--latest", "--execute", "--admin", process.admin_url)
    made = run(Path(sys.executable).with_name("kreplica"), *words)
    assert made.returncode == 0, made.stderr
    metrics = fetched(process, "/metrics").decode()
    assert "kafka_consumergroup_current_offset{" in metrics
    done = run(promtool(), "check", "metrics", input=metrics)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_kubernetes_manifests(tmp_path: Path) -> None:
    """kubeconform accepts the manifests, with the schemas that kubernetes-validate contains."""
    import kubernetes_validate

    version = f"v{kubernetes_validate.latest_version()}-local-strict"
    schemas = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / version
    # kubeconform reads no references to other files, so each schema gets the definitions.
    shared = '"/api/_definitions.json#'
    definitions = json.loads((schemas / "_definitions.json").read_text().replace(shared, '"#'))["$defs"]
    objects = [each for path in MANIFESTS for each in documents(path)]
    for each in objects:
        group, _, api_version = each["apiVersion"].rpartition("/")
        name = "-".join(filter(None, (each["kind"].lower(), group.partition(".")[0], api_version))) + ".json"
        schema = json.loads((schemas / name).read_text().replace(shared, '"#'))
        (tmp_path / name).write_text(json.dumps({**schema, "$defs": definitions}))
    location = f"{tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    done = run(kubeconform(), "-strict", "-summary", "-schema-location", location, *MANIFESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Valid: {len(objects)}" in done.stdout


@pytest.mark.parametrize("directory", [KUBERNETES, KUBERNETES / "zookeeper"], ids=lambda directory: directory.name)
def test_kustomizations(directory: Path) -> None:
    """kubectl composes the manifests of each directory."""
    done = run(program("kubectl"), "kustomize", directory)
    assert done.returncode == 0, done.stderr
    composed = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout)}
    files = [path for path in MANIFESTS if path.parent == directory]
    assert composed == {(each["kind"], each["metadata"]["name"]) for path in files for each in documents(path)}


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
    done = run(lintian, "--fail-on", "error", "--allow-root", "--tag-display-limit=0", built.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
