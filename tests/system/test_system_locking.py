"""An open cluster is secured by rolling restarts under load, in the documented steps."""

import re
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from steady_load import check_healthy, clients

from tests.support.secured_processes import SecuredProcesses

PASSWORD = "planted-secret-3"
SILENCE_S_MAX = 10
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
PAGE = Path(__file__).parents[2] / "docs/how-to/security.md"


class LockingSteps:
    """The steps of the documentation, each with a restart of every broker."""

    def __init__(self, scene, topic):
        self.scene = scene
        self.topic = topic
        self.seconds = []

    def restart_all(self, change):
        """Change the settings of one broker after another, each with a controlled restart."""
        cluster = self.scene.cluster
        started_s = time.monotonic()
        for broker in cluster.brokers.values():
            change(broker)
            broker.stop()
            broker.start()
            cluster.wait_until_in_sync(self.topic)
        self.seconds.append(round(time.monotonic() - started_s, 1))

    def admin(self):
        """Return an admin client, which must be kept referenced until its requests are done."""
        return AdminClient({"bootstrap.servers": self.scene.servers, **self.scene.client_settings()})

    def create_user(self):
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())
        admin = self.admin()
        admin.alter_user_scram_credentials([change])["alice"].result(20)

    def create_acls(self):
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in (
                (ResourceType.TOPIC, self.topic, AclOperation.WRITE),
                (ResourceType.TOPIC, self.topic, AclOperation.READ),
                (ResourceType.GROUP, "none", AclOperation.READ),
            )
        ]
        admin = self.admin()
        for created in admin.create_acls(bindings).values():
            created.result(20)

    def visible_topics(self):
        """Return the topics that alice may describe."""
        settings = {"bootstrap.servers": self.scene.servers, **self.scene.client_settings("alice", PASSWORD)}
        return set(Producer(settings).list_topics(timeout=20).topics)


def is_reconnect(error):
    """Return True if an error of librdkafka means that a connection was lost, possibly during the authentication."""
    if error.code() == KafkaError._AUTHENTICATION:
        return "Broker transport failure" in error.str()
    return error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


@pytest.mark.soak
def test_open_cluster_is_locked_under_load(zookeeper, tmp_path, topic):
    """Clients change to the secured listener once; no acknowledged record is lost, and no client fails."""
    scene = SecuredProcesses(tmp_path, f"{zookeeper.connect_string}/{topic}")
    key_store = scene.new_certificate()
    steps, errors = LockingSteps(scene, topic), []
    with scene.cluster as cluster:
        cluster.create_topic(topic, 3, 3, {"min.insync.replicas": 2})
        cluster.create_topic("secrets", 1, 3)
        in_plaintext = {"error_cb": errors.append}
        with clients(cluster.bootstrap_servers, topic, settings=in_plaintext) as (first, first_reader):
            first.longest_silence_s = 0.0
            steps.restart_all(lambda broker: broker.settings.update(
                scene.listeners(broker, is_open=True) | scene.tls_and_sasl(key_store)
            ))  # fmt: skip
        check_healthy(cluster, topic, first)
        cluster.connect = scene.connect
        steps.create_user()
        secured = "t-secured"
        steps.topic = secured
        cluster.create_topic(secured, 3, 3, {"min.insync.replicas": 2})
        settings = {**scene.client_settings("alice", PASSWORD), "error_cb": errors.append}
        silences_s = [first.longest_silence_s]
        with clients(scene.servers, secured, settings=settings) as (second, second_reader):

            def step(change):
                second.longest_silence_s = 0.0
                steps.restart_all(change)
                silences_s.append(second.longest_silence_s)

            step(lambda broker: broker.settings.update({"inter.broker.listener.name": "SASL_SSL"}))
            rights = {"authorizer.class.name": AUTHORIZER, "super.users": "User:broker;User:admin"}
            step(lambda broker: broker.settings.update(rights | {"allow.everyone.if.no.acl.found": "true"}))
            assert steps.visible_topics() >= {topic, secured, "secrets"}
            steps.create_acls()
            step(lambda broker: broker.settings.pop("allow.everyone.if.no.acl.found"))
            step(lambda broker: broker.settings.update(scene.listeners(broker, is_open=False)))
        check_healthy(cluster, secured, second)
        assert steps.visible_topics() == {secured}
        for broker in cluster.brokers.values():
            with socket.socket() as probe:
                assert probe.connect_ex((broker.place.host, broker.place.port)) != 0
    waits = [round(each, 2) for each in silences_s]
    print(
        f"{first.acknowledged_count} + {second.acknowledged_count} records acknowledged; seconds per step "
        f"{steps.seconds}; longest time without acknowledgement per step {waits} s; {len(errors)} reconnects"
    )
    unexpected = [error for error in errors if not is_reconnect(error)]
    assert (unexpected, first_reader.errors, second_reader.errors) == ([], [], [])
    assert max(silences_s) < SILENCE_S_MAX


def test_documented_steps():
    """The table in the documentation lists the steps of the test."""
    steps = re.findall(r"^\| (\d) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    texts = [text for _, text in steps]
    assert "SASL_SSL" in texts[0]
    assert "inter.broker.listener.name" in texts[1]
    assert "allow.everyone.if.no.acl.found=true" in texts[2]
    assert texts[3].startswith("Remove `allow.everyone.if.no.acl.found`")
    assert texts[4].startswith("Remove the plaintext listener")
