"""Takes screenshots of the dashboard: ``python -m tests.dashboard.screenshots [DIRECTORY]``.

The cluster has three brokers, topics, clients, a running plan and a killed broker.  The four screenshots in the
documentation are written to ``docs/images``; with a directory, those of every page are written there, light and dark.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, Producer

from tests.support.standalone import StandaloneProcess

from .browser import Browser, browser

DOCUMENTS = Path(__file__).parents[2] / "docs" / "images"
OVERRIDES = ("min.insync.replicas=2", "zookeeper.session.timeout.ms=3000", "offsets.topic.num.partitions=4")
TOPICS = {"orders": (6, 3), "payments": (12, 3), "clicks": (18, 2), "audit": (3, 3)}
WARM_UP_S = 75
WIDTH, HEIGHT = 1280, 860
TALL = 1245
"""Height at which the cards and the map of the overview are visible."""

PAGES = (
    "", "brokers", "broker/2", "topics", "topics/new", "topic/orders", "topic/orders/settings",
    "messages", "messages/orders", "messages/orders/tail", "messages/orders/produce", "groups", "group/kitchen",
    "plans", "plans/new", "plan/PLAN", "why", "why/partitions/orders/0", "why/groups/kitchen", "timeline", "users",
    "quotas", "clients",
)  # fmt: skip


def main() -> None:
    everything = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arguments = tuple(word for override in OVERRIDES for word in ("--override", override))
        cluster = stack.enter_context(StandaloneProcess(directory, brokers=3, arguments=arguments))
        prepare(cluster)
        stack.enter_context(load(cluster))
        views = {
            scheme: stack.enter_context(browser(cluster.admin_url, dark=scheme == "dark", width=WIDTH, height=HEIGHT))
            for scheme in ("light", "dark")
        }
        for view in views.values():
            view.open("topics")
        time.sleep(WARM_UP_S)
        plan = post(cluster, "/v1/plans", {
            "kind": "replication_factor", "topics": ["clicks"], "replication_factor": 3,
            "throttle_bytes_per_second": 3_000, "comment": "a third replica before the sale",
        })["plan"]["id"]  # fmt: skip
        time.sleep(5)
        if everything is not None:
            write_all(views, everything, plan)
        take(views["light"], "messages/orders?search=coffee", DOCUMENTS / "messages.png")
        take(views["dark"], f"plan/{plan}", DOCUMENTS / "plan.png")
        post(cluster, "/v1/standalone/brokers/3/kill", None)
        views["light"].open("")
        views["light"].until_text("under-replicated")
        views["light"].open("topics")
        time.sleep(15)
        take(views["light"], "", DOCUMENTS / "overview.png", height=TALL)
        take(views["dark"], "why/partitions/orders/0", DOCUMENTS / "why.png")


def prepare(cluster: StandaloneProcess) -> None:
    """Create the topics."""
    for name, (partitions, copies) in TOPICS.items():
        # Topics with two replicas still accept records while one is down.
        configs = {"min.insync.replicas": str(copies - 1)}
        body = {"name": name, "partitions": partitions, "replication_factor": copies, "configs": configs}
        post(cluster, "/v1/topics", body)


def post(cluster: StandaloneProcess, path: str, body: object) -> dict:
    """Send a write request to the API, and return its response."""
    data = b"" if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"content-type": "application/json"}
    with urlopen(Request(cluster.admin_url + path, data, headers, method="POST"), timeout=30) as response:
        return json.load(response)


@contextmanager
def load(cluster: StandaloneProcess) -> Iterator[None]:
    """Produce orders, payments and clicks, with a group that keeps up and one that falls behind."""
    stopped = threading.Event()
    threads = [
        threading.Thread(target=produce, args=(cluster, stopped)),
        threading.Thread(target=consume, args=(cluster, stopped, "kitchen", "orders", 0.05)),
        threading.Thread(target=consume, args=(cluster, stopped, "accounting", "payments", 0.0)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def produce(cluster: StandaloneProcess, stopped: threading.Event) -> None:
    """Produce a few hundred messages per second, at a varying rate."""
    rng = random.Random(1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "log_level": 0})
    number = 0
    while not stopped.wait(0.1):
        for _ in range(int(30 + 20 * rng.random() + 25 * (number // 4000 % 2))):
            number += 1
            items = rng.sample(["coffee", "tea", "cake", "bread", "soup"], 2)
            order = {"order": number, "items": items, "table": rng.randrange(1, 30), "paid": rng.random() < 0.6}
            topic = rng.choice(["orders", "payments", "clicks", "clicks"])
            producer.produce(topic, key=f"guest-{rng.randrange(500)}", value=json.dumps(order), headers={"shop": b"7"})
        producer.poll(0)
    producer.flush(5)


def consume(cluster: StandaloneProcess, stopped: threading.Event, group: str, topic: str, pause_s: float) -> None:
    """Consume as a member of a group, with a pause of ``pause_s`` after each message."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": f"{group}-1", "log_level": 0,
        "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not stopped.wait(pause_s):
        consumer.poll(0.2)
    consumer.close()


def write_all(views: dict[str, Browser], directory: Path, plan: str) -> None:
    """Take screenshots of every page in full height, light and dark."""
    directory.mkdir(parents=True, exist_ok=True)
    for address in PAGES:
        for scheme, view in views.items():
            name = f"{address.replace('/', '_') or 'overview'}_{scheme}.png"
            take(view, address.replace("PLAN", plan), directory / name, height=None)


def take(view: Browser, address: str, path: Path, *, height: int | None = HEIGHT) -> None:
    """Write a screenshot of a page.

    :param height: None for the whole page.
    """
    view.open(address)
    time.sleep(3)
    view.driver.execute_script("document.activeElement.blur()")
    view.size(WIDTH, height or max(HEIGHT, view.driver.execute_script("return document.documentElement.scrollHeight")))
    path.parent.mkdir(parents=True, exist_ok=True)
    view.driver.save_screenshot(str(path))
    view.size(WIDTH, HEIGHT)
    print(path, path.stat().st_size, *view.console_errors(), flush=True)


if __name__ == "__main__":
    main()
