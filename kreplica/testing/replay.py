"""A controller's run, repeated from its journal by the controller of this program: does it decide the same?

for outcome in replay_files(read_journals(OsDisk(), "data/broker-1")):
    print(outcome)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kreplica.controller.controller import Controller
from kreplica.controller.journal import Journal
from kreplica.controller.journal_lines import Line
from kreplica.controller.journal_seams import recorded
from kreplica.testing.replay_reading import JournalFile
from kreplica.testing.replay_script import Difference, Script
from kreplica.testing.replay_start import Start
from kreplica.testing.replay_world import ReplayWorld

DECISIONS = ("multi", "create", "delete")


@dataclass(slots=True)
class Outcome:
    """Of one file.

    :ivar events: that were handled.
    :ivar writes: requests that change ZooKeeper; ``commands`` requests to brokers.
    :ivar entries: of the journal that were the same.
    """

    path: str
    events: int = 0
    writes: int = 0
    commands: int = 0
    entries: int = 0
    difference: Difference | None = None

    @property
    def decisions(self) -> int:
        return self.writes + self.commands

    def count(self, line: Line) -> None:
        kind = line.get("out")
        self.entries += 1
        self.events += kind == "event"
        self.writes += kind in DECISIONS
        self.commands += kind == "command"


def replay(
    journal_file: JournalFile,
    told: Callable[[Line], None] | None = None,
    until: int | None = None,
    make: type[Controller] = Controller,
) -> Outcome:
    """Repeat one file's run.

    :param told: called with each entry that is the same.
    :param until: the number of the last event that is repeated; None for all.
    :param make: the controller.
    """
    outcome = Outcome(journal_file.path)

    def same(line: Line) -> None:
        outcome.count(line)
        if told is not None:
            told(line)

    script = Script(journal_file.lines, same)
    world = ReplayWorld(script, journal_file.head["config"])
    world.now_s = journal_file.head["s"]
    journal = Journal(script, lambda: world.now_s)
    world.controller = make(recorded(world.surroundings, journal), journal)
    if journal_file.state is not None:
        Start(world, journal, journal_file.state).stand()
    script.muted = False
    while (line := script.next) is not None and (until is None or script.event <= until):
        if "in" in line:
            world.perform(line)
        else:
            script.did_nothing()
    outcome.difference = script.difference
    return outcome
