"""The Kubernetes manifests: valid, and their brokers accept their settings and form one cluster."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import KUBERNETES, MANIFESTS, documents, manifest, pod_variables, settings_of

ORDINALS = (0, 1, 2)


@pytest.fixture(scope="module")
def stateful_set() -> dict[str, Any]:
    return manifest("StatefulSet", "kreplica")["spec"]


@pytest.fixture(scope="module")
def container(stateful_set: dict[str, Any]) -> dict[str, Any]:
    (only,) = stateful_set["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_objects_are_valid(path: Any) -> None:
    """Each object has the required fields of the API, and no unknown fields."""
    import kubernetes_validate

    for each in documents(path):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_each_manifest_is_in_a_kustomization() -> None:
    for directory in (KUBERNETES, KUBERNETES / "zookeeper"):
        (kustomization,) = documents(directory / "kustomization.yaml")
        files = {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"}
        assert set(kustomization["resources"]) == files


@pytest.mark.parametrize("ordinal", ORDINALS)
def test_settings_of_a_broker(stateful_set: dict[str, Any], ordinal: int) -> None:
    """The broker ID is the ordinal of the pod, and the advertised host is the DNS name of the pod."""
    variables = pod_variables(stateful_set["template"], ordinal)
    settings = settings_of(variables)
    assert settings["broker.id"] == ordinal
    name = f"kreplica-{ordinal}.{stateful_set['serviceName']}.shop.svc.cluster.local"
    assert [(each.host, each.port) for each in settings.advertised_listeners] == [(name, 9092)]
    assert variables["KREPLICA_ADMIN"] == f"https://{name}:8080"
    for option in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{option}.replication.factor"] == stateful_set["replicas"] == 3
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == 2


def test_the_headless_service_gives_the_pods_their_names(stateful_set: dict[str, Any]) -> None:
    """Brokers can resolve each other before they are ready; clients can resolve only ready brokers."""
    labels = stateful_set["template"]["metadata"]["labels"]
    headless, bootstrap = (manifest("Service", name)["spec"] for name in ("kreplica", "kreplica-bootstrap"))
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in bootstrap
    assert headless["selector"] == bootstrap["selector"] == stateful_set["selector"]["matchLabels"] == labels


def test_probes_use_the_health_checks(container: dict[str, Any]) -> None:
    """All probes use TLS; a start may take half an hour; a broker without a response for a minute is restarted."""
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = {kind: container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    paths = {"startup": "/health/live", "readiness": "/health/ready", "liveness": "/health/live"}
    for kind, probe in probes.items():
        assert probe["httpGet"] == {"scheme": "HTTPS", "path": paths[kind], "port": "admin"}
    assert ports == {"kafka": 9092, "admin": 8080}
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 1800
    assert probes["liveness"]["periodSeconds"] * probes["liveness"]["failureThreshold"] >= 60


def test_a_broker_has_time_to_stop(stateful_set: dict[str, Any]) -> None:
    """The termination grace period is longer than a controlled shutdown."""
    settings = settings_of(pod_variables(stateful_set["template"], 0))
    shutdown_s = settings["controlled.shutdown.max.retries"] * settings["controlled.shutdown.retry.backoff.ms"] / 1000
    assert stateful_set["template"]["spec"]["terminationGracePeriodSeconds"] > 3 * shutdown_s


@pytest.mark.parametrize("name", ["kreplica", "zookeeper"])
def test_pods_have_few_permissions(name: str) -> None:
    """Pods satisfy the Kubernetes pod security standard ``restricted``, and do not use the Kubernetes API."""
    spec = manifest("StatefulSet", name)["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for each in spec["containers"]:
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in each["resources"]["limits"]


def test_brokers_cannot_write_to_their_image(container: dict[str, Any]) -> None:
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/kreplica", "/tmp"}


@pytest.mark.parametrize("name", ["kreplica", "zookeeper"])
def test_pods_run_on_different_nodes_and_stop_one_at_a_time(name: str) -> None:
    template = manifest("StatefulSet", name)["spec"]["template"]
    labels = template["metadata"]["labels"]
    (rule,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    budget = manifest("PodDisruptionBudget", name)["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    policy = manifest("NetworkPolicy", name)["spec"]
    assert policy["podSelector"] == {"matchLabels": labels}
    assert policy["policyTypes"] == ["Ingress"]


def test_the_admin_api_needs_the_token(stateful_set: dict[str, Any], container: dict[str, Any]) -> None:
    """The files in the settings of the admin API are mounted from the secret."""
    settings = settings_of(pod_variables(stateful_set["template"], 0))
    assert settings["kreplica.admin.allow.anonymous"] is False
    mount = next(each for each in container["volumeMounts"] if each["name"] == "admin")
    names = ("token.file", "tls.certificate.file", "tls.key.file")
    files = [settings[f"kreplica.admin.{name}"] for name in names]
    assert files == [f"{mount['mountPath']}/{name}" for name in ("token", "tls.crt", "tls.key")]
    volume = next(each for each in stateful_set["template"]["spec"]["volumes"] if each["name"] == "admin")
    assert volume["secret"]["secretName"] == "kreplica-admin"
