"""What producers send again, and what they may not send at all."""

from __future__ import annotations

from kreplica.testing.storms.scenarios.scene import LEADER, name, scene


def is_sent_again(seed: int) -> None:
    """Connections break between append and acknowledgement: the retry is known, and written once."""
    with scene(seed) as run:
        for _ in range(10):
            run.acknowledge(5)
            run.steps(run.random.randrange(40))
            run.network.drop_connections("producer-0", name(LEADER))
        run.converge()
