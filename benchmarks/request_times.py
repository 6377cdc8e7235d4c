"""CPU time of requests to a simulated broker, in an interpreter that has only the broker's own dependencies."""

from __future__ import annotations

import json
import time

from benchmarks.calls import Leader, build_frame
from benchmarks.instructions import REQUESTS

BATCHES, READS = 200, 50


def serve() -> None:
    """Print the CPU time of each request in microseconds as JSON: the best of many batches."""
    leader, costs = Leader(brokers=1), {}
    for name, (api, version, body, times) in REQUESTS.items():
        best_s = float("inf")
        for _ in range(BATCHES):
            reads = [[build_frame(api, version, body) for _ in range(times)] for _ in range(READS)]
            begun_s = time.process_time()
            for frames in reads:
                leader.receive(frames)
            best_s = min(best_s, time.process_time() - begun_s)
        costs[name] = best_s / READS / times * 1e6
    print(json.dumps(costs))
