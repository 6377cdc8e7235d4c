"""Runs attacks one after another: ``python tests/attacks/run_attacks.py --seconds 600 [NAME ...]``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from attackers import ATTACKS
from harness import AttackedCluster


def main() -> None:
    """Run each attack on a new cluster, and print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(ATTACKS), help="attacks (default: all)")
    parser.add_argument("--seconds", type=float, default=600.0, help="duration of each attack")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.names:
        with AttackedCluster(Path(tempfile.mkdtemp(prefix=f"attack-{name}-"))) as attacked:
            print(attacked.run(name, options.seconds, options.seed).as_json(), flush=True)


if __name__ == "__main__":
    main()
