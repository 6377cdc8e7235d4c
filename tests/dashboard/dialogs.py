"""A cluster for tests of dialogs, and a check that a dialog's writes equal its preview."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.support.standalone import StandaloneProcess

from .browser import Browser

OVERRIDES = (
    "zookeeper.session.timeout.ms=3000",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
    "super.users=User:ANONYMOUS",
)

TRANSIENT = ("/config/changes/", "/kafka-acl-changes/", "/kafka-acl-extended-changes/", "/admin/")
"""Prefixes of znodes that the controller or brokers delete after processing them."""

TIMEOUT_S = 20


@contextmanager
def dialog_cluster(directory: Path, brokers: int = 3) -> Iterator[StandaloneProcess]:
    """Run a cluster in which every caller is a super user, with a ZooKeeper client as attribute ``zookeeper``."""
    factors = (f"{name}.replication.factor={min(brokers, 2)}" for name in ("default", "offsets.topic"))
    arguments = tuple(word for override in (*OVERRIDES, *factors) for word in ("--override", override))
    with StandaloneProcess(directory, brokers=brokers, arguments=arguments) as process:
        client = KazooClient(hosts=f"127.0.0.1:{process.coordinator_port}")
        client.start(timeout=TIMEOUT_S)
        process.zookeeper = client  # type: ignore[attr-defined]
        try:
            yield process
        finally:
            client.stop()
            client.close()


def call_api(cluster: StandaloneProcess, path: str, method: str = "GET", body: object = None) -> Any:
    """Send a request to the API without the dashboard, and return its document."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        cluster.admin_url + path, data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None


def topic(cluster: StandaloneProcess, name: str, assignment: dict[str, list[int]]) -> None:
    """Create a topic."""
    call_api(cluster, "/v1/topics", "POST", {"name": name, "assignment": assignment})


def partitions_of(cluster: StandaloneProcess, name: str) -> list[Any]:
    """Return the partitions of a topic."""
    return list(call_api(cluster, f"/v1/topics/{name}/partitions")["partitions"])


def wait_for_api(cluster: StandaloneProcess, path: str, condition: Callable[[Any], Any]) -> Any:
    """Repeat a read until its response satisfies a condition, and return the response."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition(found := call_api(cluster, path)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def previewed_writes(view: Browser) -> list[tuple[str, str, str]]:
    """Return the writes to ZooKeeper in the current preview: operation, path and data."""
    read = "return document.querySelector('.preview[aria-busy=false] pre')?.textContent"
    text = view.until(lambda: view.driver.execute_script(read), "writes in the dialog")
    writes = []
    for each in text.split("\n\n"):
        first, _, data = each.partition("\n")
        operation, _, path = first.partition(" ")
        writes.append((operation, path, data))
    return writes


def preview_rows(view: Browser) -> list[list[str]]:
    """Return the cell texts of each row in the current preview."""
    read = """return [...document.querySelectorAll('.preview[aria-busy=false] tbody tr')]
        .map(row => [...row.children].map(cell => cell.innerText))"""
    return list(view.until(lambda: view.driver.execute_script(read), "rows in the preview"))


def confirm_writes(view: Browser, cluster: StandaloneProcess, button: str) -> list[tuple[str, str, str]]:
    """Press a dialog's button, check that the znodes are as previewed, and return the previewed writes."""
    writes = previewed_writes(view)
    view.confirm(button)
    check_writes(cluster, writes)
    return writes


def check_writes(cluster: StandaloneProcess, writes: list[tuple[str, str, str]]) -> None:
    """Check that the znodes are as previewed."""
    client = cluster.zookeeper  # type: ignore[attr-defined]
    for operation, path, data in writes:
        if path.startswith(TRANSIENT):
            continue
        if operation == "delete":
            assert client.exists(path) is None, path
        else:
            content = client.get(path)[0].decode()
            assert _parsed(content) == _parsed(data), path


def _parsed(text: str) -> object:
    """Return data for a comparison, without the topic ID, for which a preview shows an example."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if isinstance(document, dict):
        document.pop("topic_id", None)
    return document
