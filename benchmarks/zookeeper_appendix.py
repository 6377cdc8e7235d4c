"""The ZooKeeper benchmark with the numbers of znodes in the controller redesign document: 500,000 and 1,000,000.

The rows are those of the document's appendix.  `all at once` sends every request without waiting for responses, as the
document's client did until it ran out of memory; kreplica's client rejects requests above its limits (`PipelineFull`,
`RequestTooLarge`) and keeps its connection.  Experiments that wait for each response use one in 25 znodes, and kazoo
uses a tenth of the other clients' znodes.

``python -m benchmarks zookeeper_appendix --scale full`` takes hours; with five servers, as in the document:
``python -m benchmarks.zookeeper_appendix --servers 5``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import zookeeper
from benchmarks.tables import markdown
from benchmarks.zookeeper import Scale
from benchmarks.zookeeper_clients import TARGETS
from benchmarks.zookeeper_experiments import DOCUMENT_MS

KAZOO_PART = 10
SCALES = {
    "quick": [Scale(5_000, 1, target_parts={"kazoo": KAZOO_PART}, at_once=True)],
    "full": [Scale(count, 5, target_parts={"kazoo": KAZOO_PART}, at_once=True) for count in DOCUMENT_MS],
}


def run(
    scale: str = "quick", rounds: int | None = None, targets: Sequence[str] = tuple(TARGETS), servers: int = 1
) -> list[dict[str, Any]]:
    """Run all experiments at each number of znodes; see ``zookeeper.run``."""
    return [row for each in SCALES[scale] for row in zookeeper.run(each, rounds, targets, servers=servers)]


def main() -> None:
    """Run the experiments and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper_appendix", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--rounds", type=int, help="number of rounds for medians")
    parser.add_argument("--servers", type=int, default=1, help="number of ZooKeeper servers; the document used 5")
    parser.add_argument("--targets", default=",".join(TARGETS), help="some of kreplica,java,kazoo,raw")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows to this file")
    options = parser.parse_args()
    rows = run(options.scale, options.rounds, options.targets.split(","), options.servers)
    print(markdown(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
