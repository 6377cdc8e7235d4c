"""``KreplicaContainer``: a broker in a container, for tests that use testcontainers.

It needs kreplica's container image, Docker and the package ``testcontainers`` (``pip install
kreplica[testcontainers]``). The pytest fixture ``kafka_cluster`` needs none of them.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Self

from kreplica import __version__
from kreplica.settings.overrides import variable_of_setting

try:
    from testcontainers.core.container import DockerContainer
except ImportError as error:
    raise ImportError("kreplica.testing.container needs: pip install 'kreplica[testcontainers]'") from error

IMAGE = f"kreplica:{__version__}"
KAFKA_PORT, ADMIN_PORT = 9092, 8080

INTERNAL = "INTERNAL://127.0.0.1:19092"
"""Listener for the broker's own requests, because the published port may be unreachable from inside the container."""

LISTENERS = {
    "listeners": f"PLAINTEXT://0.0.0.0:{KAFKA_PORT},{INTERNAL}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}

SCRIPT, SCRIPT_COMPLETE = "kreplica-start.sh", "kreplica-start.complete"
ENTRYPOINT = ["/bin/sh", "-c", f"until [ -e /tmp/{SCRIPT_COMPLETE} ]; do sleep 0.05; done; exec sh /tmp/{SCRIPT}"]
"""Waits for the script that starts the broker, because the broker advertises a port that Docker chooses."""

COMMAND = (
    "twistd --nodaemon --pidfile= kreplica standalone --environment --interface 0.0.0.0 "
    f"--admin-port {ADMIN_PORT} --data-dir /var/lib/kreplica --override kreplica.admin.allow.anonymous=true"
)

POLL_S = 0.05
REQUEST_S_MAX = 5.0


class KreplicaContainer(DockerContainer):
    """One broker with an embedded ZooKeeper server; use it in a ``with`` statement.

    :param image: kreplica's container image.
    :param settings: the broker's settings, with the names of Kafka's ``server.properties``.
    :param options: arguments of ``DockerContainer``.
    """

    def __init__(self, image: str = IMAGE, *, settings: Mapping[str, object] | None = None, **options: Any) -> None:
        super().__init__(image, **{"entrypoint": ENTRYPOINT, **options})
        self.with_exposed_ports(KAFKA_PORT, ADMIN_PORT)
        for name, value in {**LISTENERS, **(settings or {})}.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            self.with_env(variable_of_setting(name), text)

    def get_bootstrap_server(self) -> str:
        """Return the bootstrap server for any Kafka client, as HOST:PORT."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(KAFKA_PORT)}"

    def admin_url(self) -> str:
        """Return the URL of the admin API and the dashboard."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(ADMIN_PORT)}"

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start the container and wait until the broker serves clients.

        :raise RuntimeError: the broker is not ready in time, or the container has ended; the message contains its log.
        """
        super().start()
        self._send_script()
        self._wait_until_ready(f"{self.admin_url()}/health/ready", time.monotonic() + timeout_s)
        return self

    def with_kwargs(self, **kwargs: Any) -> Self:
        return super().with_kwargs(**{"entrypoint": ENTRYPOINT, **kwargs})

    def _send_script(self) -> None:
        variable = variable_of_setting("advertised.listeners")
        advertised = f"PLAINTEXT://{self.get_bootstrap_server()},{INTERNAL}"
        script = f"export {variable}={shlex.quote(advertised)}\nexec {COMMAND}\n"
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, text in ((SCRIPT, script), (SCRIPT_COMPLETE, "")):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(text.encode()), 0o644
                archive.addfile(member, io.BytesIO(text.encode()))
        self.get_wrapped_container().put_archive("/tmp", file.getvalue())

    def _wait_until_ready(self, url: str, deadline_s: float) -> None:
        while (reason := _reason_not_ready(url)) is not None:
            container = self.get_wrapped_container()
            container.reload()
            has_ended = container.status in ("exited", "dead")
            if has_ended or time.monotonic() > deadline_s:
                problem = "has ended" if has_ended else f"is not ready: {reason}"
                raise RuntimeError(f"the container of {self.image} {problem}\n{container.logs().decode()[-4000:]}")
            time.sleep(POLL_S)


def _reason_not_ready(url: str) -> str | None:
    """Return the reason why a broker does not serve clients; None if it does."""
    try:
        with urllib.request.urlopen(url, timeout=REQUEST_S_MAX):
            return None
    except urllib.error.HTTPError as error:
        return "; ".join(json.loads(error.read()).get("reasons", [str(error)]))
    except OSError as error:
        return str(error)
