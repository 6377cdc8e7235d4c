"""Apache Kafka 3.9.1's answers, as recorded by ``test_security_authorization_kafka``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_name("authorization_answers.json")


def load() -> tuple[dict[str, tuple[int, int]], dict[str, Any]]:
    """Return the tried versions by API key, and the answers by case."""
    recorded = json.loads(ANSWERS.read_text())
    return {key: (lowest, highest) for key, (lowest, highest) in recorded["versions"].items()}, recorded["answers"]


def save(versions: Mapping[str, tuple[int, int]], answers: Mapping[str, Any]) -> None:
    """Write the file, with one line per case."""
    lines = [f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
    text = ",\n".join(lines)
    ANSWERS.write_text(f'{{"versions": {json.dumps(versions)},\n"answers": {{\n{text}\n}}}}\n')
