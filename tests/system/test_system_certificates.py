"""Certificates that are replaced every second while clients write and read, on real processes with SASL_SSL."""

import os
import shutil
import socket
import ssl
import threading
import time

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from steady_load import check_healthy, clients

from kreplica.security.tls.reloading import CHECK_INTERVAL_S
from kreplica.service.process.heap import EXCESS_BYTES
from tests.support.process_cluster import wait_until
from tests.support.secured_processes import SecuredProcesses

SECONDS = 30
WARM_UP = 30
"""Replacements before memory and descriptors are measured."""

FILES_GROWTH_MAX = 10
MEMORY_GROWTH_MAX = EXCESS_BYTES + (8 << 20)
"""A broker keeps up to ``EXCESS_BYTES`` of free memory before it returns them to the operating system.

``test_security_certificate_expiry`` checks that not a single previous certificate stays in memory.
"""

SETTING = "listener.name.sasl_ssl.ssl.keystore.location"
PATIENCE = {"zookeeper.session.timeout.ms": 18_000}
"""No broker fails, so a busy machine must not end a session."""


class Certificates:
    """The certificate of each broker, replaced by its file or by its setting."""

    def __init__(self, scene, key_stores):
        self.scene = scene
        self.key_stores = key_stores
        self.seen = {broker_id: set() for broker_id in key_stores}
        self.delays_s = []
        self._admin = AdminClient({"bootstrap.servers": scene.servers, **scene.client_settings()})

    def presented_serial_number(self, broker_id):
        """Return the serial number of the certificate on a new connection, after verifying it as clients do."""
        context = ssl.create_default_context(cafile=str(self.scene.authority))
        connection = socket.create_connection(("127.0.0.1", self.scene.ports[broker_id]), 10)
        with connection, context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
            number = load_der_x509_certificate(secured.getpeercert(binary_form=True)).serial_number
        self.seen[broker_id].add(number)
        return number

    def replace_files(self):
        """Replace the files in use with new certificates."""
        for key_store in self.key_stores.values():
            os.replace(self.scene.new_certificate(), key_store)

    def replace_by_settings(self):
        """Change the setting of each broker to a new file; new connections must see it within seconds."""
        for broker_id in self.key_stores:
            path = self.scene.new_certificate()
            entry = ConfigEntry(SETTING, str(path), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
            started_s = time.monotonic()
            self._admin.incremental_alter_configs([resource])[resource].result(20)
            self.key_stores[broker_id] = path
            self.wait_until_presented(broker_id)
            self.delays_s.append(time.monotonic() - started_s)

    def wait_until_presented(self, broker_id, timeout_s=20.0):
        """Wait until new connections see the newest certificate."""
        number = load_pem_x509_certificate(self.key_stores[broker_id].read_bytes()).serial_number
        wait_until(
            lambda: self.presented_serial_number(broker_id) == number,
            f"the certificate of broker {broker_id}",
            timeout_s,
        )


class NewClients:
    """Connects repeatedly with new clients of librdkafka, in a thread."""

    def __init__(self, scene):
        self.count = 0
        self.errors = []
        self._settings = {"bootstrap.servers": scene.servers, **scene.client_settings(), "log_level": 0}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        while not self._stopped.wait(0.1):
            client = Producer({**self._settings, "error_cb": lambda error: self.errors.append(str(error))})
            if len(client.list_topics(timeout=20).brokers) != 3:
                self.errors.append("a broker is missing")
            self.count += 1


def usage(cluster):
    """Return the open files and the memory of each broker."""
    brokers = cluster.brokers.values()
    return [(len(os.listdir(f"/proc/{each.pid}/fd")), each.resident_bytes()) for each in brokers]


@pytest.mark.soak
def test_certificates_are_replaced_under_load(zookeeper, tmp_path, topic):
    """No client fails, no acknowledged record is lost, new connections get the new certificates, and nothing leaks."""
    scene = SecuredProcesses(tmp_path, f"{zookeeper.connect_string}/{topic}", PATIENCE)
    key_stores = {}
    for broker in scene.cluster.brokers.values():
        key_stores[broker.broker_id] = path = tmp_path / f"broker-{broker.broker_id}.pem"
        shutil.copy(scene.new_certificate(), path)
        broker.settings |= scene.listeners(broker, is_open=False) | scene.tls_and_sasl(path)
        broker.settings["inter.broker.listener.name"] = "SASL_SSL"
    scene.cluster.connect = scene.connect
    with scene.cluster as cluster:
        cluster.create_topic(topic, 3, 3, {"min.insync.replicas": 2})
        errors = []
        settings = {**scene.client_settings(), "error_cb": errors.append}
        certificates = Certificates(scene, key_stores)
        with clients(scene.servers, topic, settings=settings) as (producer, reader), NewClients(scene) as new_clients:
            for number in range(WARM_UP + SECONDS):
                if number == WARM_UP:
                    before = usage(cluster)
                started_s = time.monotonic()
                if number % 2:
                    certificates.replace_by_settings()
                else:
                    certificates.replace_files()
                    for broker_id in key_stores:
                        certificates.presented_serial_number(broker_id)
                time.sleep(max(started_s + 1 - time.monotonic(), 0))
            certificates.replace_files()
            for broker_id in key_stores:
                certificates.wait_until_presented(broker_id, CHECK_INTERVAL_S + 20)
            after = usage(cluster)
        check_healthy(cluster, topic, producer)
        fatal = [error for error in errors if error.code() != KafkaError._TRANSPORT]
        assert (fatal, reader.errors, new_clients.errors) == ([], [], [])
        print(
            f"{producer.acknowledged_count} records, longest time without acknowledgement "
            f"{producer.longest_silence_s:.2f} s; {new_clients.count} new clients; certificates seen per broker "
            f"{[len(seen) for seen in certificates.seen.values()]}, after a setting within "
            f"{max(certificates.delays_s):.2f} s; files and bytes {before} -> {after}"
        )
        assert all(len(seen) > SECONDS // 2 for seen in certificates.seen.values())
        for (files_before, bytes_before), (files_after, bytes_after) in zip(before, after, strict=True):
            assert files_after - files_before <= FILES_GROWTH_MAX
            assert bytes_after - bytes_before <= MEMORY_GROWTH_MAX
