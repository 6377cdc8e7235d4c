"""Programs of Kafka Connect, including MirrorMaker 2, as child processes of a test."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apache_kafka

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"

WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": 500,
    "plugin.discovery": "service_load",
}
"""Settings of every Connect worker."""

STOP_TIME_S_MAX = 60
OUTPUT_SIZE_MAX = 6000


class ConnectProcess:
    """A Java process that can be stopped and restarted, and is killed on leaving the context.

    :param main: the class to run, one of the constants above.
    :param directory: directory of settings and output, which is created.
    :param files: name -> settings of each properties file, passed to the program in this order.
    """

    def __init__(self, main: str, directory: Path, files: Mapping[str, Mapping[str, object]]) -> None:
        directory.mkdir()
        self._output = directory / "output.log"
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", apache_kafka.connect_class_path(), main]
        self._command = [*java, *(str(_write(directory / f"{name}.properties", files[name])) for name in files)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; it appends to the same output."""
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def stop(self) -> None:
        """Send SIGTERM, and wait until the program has committed its offsets and ended."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_TIME_S_MAX)

    def kill(self) -> None:
        """Send SIGKILL; does nothing if the program has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def output(self) -> str:
        """The end of the program's output, for error messages."""
        return self._output.read_text(errors="replace")[-OUTPUT_SIZE_MAX:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(self.output)


class Rest:
    """Client of a Connect worker's REST API.

    :param ports: ports of the workers; a request goes to the first that responds.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports

    def put_connector(self, name: str, settings: Mapping[str, object]) -> object:
        """Create a connector or replace its settings; returns None while the workers are not ready."""
        return self._request("PUT", f"/connectors/{name}/config", {key: str(value) for key, value in settings.items()})

    def worker_port(self, name: str) -> int | None:
        """Return the port of the worker that runs the connector's only task; None while no worker runs it."""
        status = self._request("GET", f"/connectors/{name}/status")
        states = [(row["state"], row["worker_id"]) for row in (status or {}).get("tasks", ())]
        if not states or states[0][0] != "RUNNING":
            return None
        return int(states[0][1].rpartition(":")[2])

    def _request(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        data = None if body is None else json.dumps(body).encode()
        for port in self._ports:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    answer: dict[str, Any] = json.load(response)
                    return answer
            except (OSError, urllib.error.HTTPError):
                continue  # the worker is not running, or a rebalance is in progress
        return None


def _write(file: Path, properties: Mapping[str, object]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file
