"""Reads the compose file and the Kubernetes manifests, and the settings that they give to brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kreplica.settings import BrokerSettings
from kreplica.settings.overrides import environment_overrides

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "packaging" / "kubernetes"
COMPOSE = ROOT / "packaging" / "compose" / "compose.yaml"
MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a YAML file."""
    yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def manifest(kind: str, name: str) -> dict[str, Any]:
    """Return the Kubernetes object of a kind and a name."""
    found = [each for path in MANIFESTS for each in documents(path)
             if (each["kind"], each["metadata"]["name"]) == (kind, name)]  # fmt: skip
    (only,) = found
    return only


def settings_of(variables: Mapping[str, Any]) -> BrokerSettings:
    """Return the settings that a broker reads from its environment, without a warning."""
    texts = {name: str(value) for name, value in variables.items()}
    settings = BrokerSettings.from_text("", environment_overrides(texts), origin="the environment")
    assert settings.warnings == ()
    return settings


def pod_variables(pod: Mapping[str, Any], ordinal: int) -> dict[str, str]:
    """Return the environment of the container of a pod, as the kubelet computes it.

    :param pod: the template of the pods of the StatefulSet ``kreplica``.
    """
    fields = {
        "metadata.name": f"kreplica-{ordinal}",
        "metadata.namespace": "shop",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    (container,) = pod["spec"]["containers"]
    variables = dict(manifest("ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"])
    for each in container["env"]:
        if "value" in each:
            variables[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], each["value"])
        else:
            variables[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return variables
