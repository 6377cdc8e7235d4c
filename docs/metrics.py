"""Generates ``metrics.md`` from the metrics of a simulated cluster: ``python docs/metrics.py``.

The cluster has records, a group, and a plan that waits for a failed broker.  The tests in ``tests/docs`` compare the
page with the generated one, and evaluate the queries of the Grafana dashboard on the same scrapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kreplica.admin.resources.metrics import Metrics
from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step
from kreplica.interfaces import Family, Histogram
from kreplica.runtime.stalls import StallWatch
from kreplica.service.metrics.broker_metrics import BrokerMetrics
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record
from kreplica.zookeeper import Create

PAGE = Path(__file__).parent / "reference" / "metrics.md"
SETTINGS = (
    "kreplica.metrics.reporters=log",  # enables metrics without an admin listener
    "kreplica.plugin.log.names=none",
    "kreplica.groups.lag.interval.ms=1000",
)
TOPIC, GROUP, PLAN = "orders", "billing", "plan-0000000001"
DOWN = 4

HEAD = """# Metrics

Prometheus scrapes `GET /metrics` at each broker's admin listener (`kreplica.admin.listener`). Metrics reporters
([plugins](../how-to/plugins.md)) receive the same values.

* Names are those of Kafka's JMX exporter and of kafka_exporter where these exist. Other names start with `kreplica_`.
* Scrape every broker. Each broker reports its own logs, the partitions that it leads and the groups that it
  coordinates, so a sum over all brokers counts each partition and each group once.
* With `kreplica.metrics.detail=topic`, metrics with the label `partition` contain one sum per topic instead,
  and `kafka_topic_partition_leader` is absent. Queries such as `sum by (topic) (kafka_log_log_size)` return the same
  values.
* Counters end in `_total`. Histograms have `_bucket`, `_sum` and `_count`.
* `etc/grafana/kreplica.json` is a Grafana dashboard: import it and select your Prometheus data source.

`python docs/metrics.py` generates this page from a simulated cluster.

| name | type | labels | description |
| --- | --- | --- | --- |
"""


class Scene:
    """A cluster with load: three running brokers and a failed one."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(1, brokers=4, overrides=SETTINGS)
        self.cluster.start()
        client = self.cluster.client()
        self.cluster.run_until(client.create_topic(TOPIC, assignment=[(1, 2), (2, 3), (3, 1), (1, 4)]))
        self.cluster.wait_in_sync(TOPIC, range(4))
        self._topics = 0
        self._watches = {n: StallWatch(self.cluster.brokers[n].host.reactor) for n in (1, 2, 3)}
        for watch in self._watches.values():
            watch.start()
        self._produce()
        self._commit()
        self.cluster.brokers[DOWN].kill()
        self.cluster.run(60)
        self._plan()
        self._produce()
        self.cluster.run(5)

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self.cluster.stop()

    def work(self) -> None:
        """Produce and fetch records, and create a topic."""
        self._produce()
        self._topics += 1
        self.cluster.run_until(self.cluster.client().create_topic(f"made-{self._topics}"))

    def _produce(self) -> None:
        for partition in range(3):
            client = self.cluster.leader_client(TOPIC, partition, name=f"app-{partition}")
            for number in range(5):
                batch = build_batch([Record(-1, 1000, None, b"%d" % number)])
                self.cluster.run_until(client.produce(TOPIC, partition, batch))
            self.cluster.run_until(client.read_all(TOPIC, partition))

    def _commit(self) -> None:
        row = {"partition_index": 0, "committed_offset": 2, "committed_metadata": ""}
        body = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [row]}], "member_id": ""}
        client = self.cluster.client()
        coordinator: Any = None
        for _ in range(100):
            request = {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP]}
            coordinator = self.cluster.run_until(client.request(messages.FIND_COORDINATOR, request))["coordinators"][0]
            if not coordinator["error_code"]:
                break
            self.cluster.run(1)
        coordinator_client = self.cluster.client(broker=coordinator["node_id"])
        for _ in range(100):
            response = self.cluster.run_until(coordinator_client.request(messages.OFFSET_COMMIT, body))
            if not response["topics"][0]["partitions"][0]["error_code"]:
                return
            self.cluster.run(1)
        raise AssertionError("no offset was committed")

    def _plan(self) -> None:
        """Create a plan that waits for the failed broker."""
        step = Step(Action.MOVE, TOPIC, 0, (1, 2), (1, DOWN), 100)
        batches = documents.creation(Plan(PLAN, PlanKind.REASSIGN, PlanState.PENDING, 0, 1), [step])
        client = self.cluster.brokers[1].program.client
        for batch in batches:
            self.cluster.run_until(client.multi([Create(path, data) for path, data in batch]))
        assert self.cluster.run_until(client.exists(znodes.plan_path(PLAN))) is not None
        self.cluster.run(2)

    def families(self, broker: int) -> Sequence[Family | Histogram]:
        """Return all metrics of one broker."""

        async def collect() -> list[Family | Histogram]:
            metrics = BrokerMetrics(self.cluster.brokers[broker].program, self._watches[broker])
            return [family async for family in metrics.families()]

        families: list[Family | Histogram] = self.cluster.run_until(collect())
        return families

    def scrape(self, broker: int) -> str:
        """Return the response of a broker to Prometheus."""
        program = self.cluster.brokers[broker].program
        (route,) = Metrics(BrokerMetrics(program, self._watches[broker]), program.runtime.reactor).routes()
        response: Any = self.cluster.run_until(route.handler(None))
        return bytes(response.content).decode()


def page(scene: Scene) -> str:
    """Return the page with the metrics of the controller, which has more metrics than the other brokers."""
    controller = scene.cluster.controller()
    assert controller is not None
    rows = []
    for family in sorted(scene.families(controller), key=lambda family: family.name):
        kind = "histogram" if isinstance(family, Histogram) else family.kind.value
        name = f"{family.name}_total" if kind == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{name}` | {kind} | {labels} | {family.help} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    scene = Scene()
    PAGE.write_text(page(scene))
    scene.stop()
