"""Git hook that checks the format of a commit message: ``python packaging/check_commit_message.py FILE``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT_LENGTH_MAX = 72
SUBJECT = re.compile(r"[\w.,/ -]+: \S.*[^.\s]")
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problems(message: str) -> list[str]:
    """Return the violations of the rules in CONTRIBUTING.md, as sentences."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(GENERATED):
        return []
    found = []
    if len(subject) > SUBJECT_LENGTH_MAX:
        found.append(f"The subject has {len(subject)} characters; the maximum is {SUBJECT_LENGTH_MAX}.")
    if not SUBJECT.fullmatch(subject):
        found.append(f"The subject {subject!r} does not have the form 'area: imperative' without a full stop.")
    if len(lines) > 1 and lines[1].strip():
        found.append("The line after the subject is not empty.")
    return found


def main(path: str) -> int:
    found = problems(Path(path).read_text(encoding="utf-8"))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
