"""A controller's run, repeated from its journal by the controller of this program: does it decide the same?

for outcome in replay_all(read_journals(OsDisk(), "data/broker-1")):
    print(outcome.events, outcome.decisions, outcome.difference)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kreplica.controller.controller import Controller
from kreplica.controller.journal.file_header import at_once, state_of
from kreplica.controller.journal.lines import Line
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import recorded
from kreplica.controller.journal.value_json import plain
from kreplica.testing.replay.reading import JournalFile, JournalUnreadable
from kreplica.testing.replay.script import Difference, Script
from kreplica.testing.replay.start import Start
from kreplica.testing.replay.world import ReplayWorld

REASON_MAX = 200

WRITES = ("multi", "create", "delete")

Told = Callable[[Controller, Line], None]
"""Called with each entry that is the same, and the controller as it was then."""


@dataclass(slots=True)
class Outcome:
    """Of one file.

    :ivar events: that were handled.
    :ivar writes: requests that change ZooKeeper; ``commands`` requests to brokers.
    :ivar entries: of the journal that were the same.
    :ivar difference: the first; None where all is the same.
    """

    file: JournalFile
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
        self.writes += kind in WRITES
        self.commands += kind == "command"


class Replay:
    """Of one file.

    :param told: None where nobody is.
    :raise JournalUnreadable: (``run`` and ``steps`` too) where an entry is nothing that this version understands.
    :param until: the number of the last event that is repeated; None for all.
    """

    def __init__(self, file: JournalFile, told: Told | None = None, until: int | None = None) -> None:
        self.outcome = Outcome(file)
        self._told = told
        self._until = until
        self._script = Script(file.lines, self._same)
        with self.understood(file.head):
            self._world = world = ReplayWorld(self._script, file.head["config"])
            world.now_s = file.head["s"]
            self._journal = Journal(self._script, lambda: world.now_s)
            self.controller = world.controller = Controller(recorded(world.dependencies, self._journal), self._journal)
            if file.state is not None:
                Start(world, self._journal, file.state).stand()

    def run(self) -> Outcome:
        """Repeat it to its end, or to the first difference."""
        for _ in self.steps():
            pass
        return self.outcome

    def steps(self) -> Iterator[None]:
        """The same, with a pause after all that follows at once from one thing that reached the controller."""
        script = self._script
        script.muted = False
        while (line := script.next) is not None and not self._is_over:
            if "in" in line:
                with self.understood(line):
                    self._world.perform(line)
            else:
                script.did_nothing()
            self.outcome.difference = script.difference
            yield

    @contextmanager
    def understood(self, line: Line) -> Iterator[None]:
        """Blame a line of the journal for whatever its handling raises, a controller's errors included.

        :raise JournalUnreadable: if the line, or what follows from it, is not what this version writes.
        """
        try:
            yield
        except JournalUnreadable:
            raise
        except Exception as error:
            file = self.outcome.file
            reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
            text = f"line {line['n'] + 1} is nothing that can reach a controller: {reason}"
            raise JournalUnreadable(f"{file.path}: {text} (it is of kreplica {file.head.get('kreplica')})") from error

    @property
    def _is_over(self) -> bool:
        return self._until is not None and self._script.event > self._until

    def _same(self, line: Line) -> None:
        if not self._is_over:
            self.outcome.count(line)
            if self._told is not None:
                self._told(self.controller, line)

    def compare_end(self, following: JournalFile) -> None:
        """Where the next file goes on with this one, it says where the controller stands now."""
        goes_on = following.goes_on_with(self.outcome.file)
        if not goes_on or self.outcome.difference is not None or self._is_over:
            return
        state = json.loads(json.dumps(at_once(state_of(self.controller, self._journal)), default=plain))
        if state != following.state:
            self.outcome.difference = Difference(self._script.event, following.state, state)


def replay_all(files: Sequence[JournalFile], told: Told | None = None, until: int | None = None) -> Iterator[Outcome]:
    """Repeat the files of one broker, in their order; where one goes on with another, they have to meet."""
    for file, following in zip(files, [*files[1:], None], strict=True):
        replay = Replay(file, told, until)
        replay.run()
        if following is not None:
            replay.compare_end(following)
        yield replay.outcome
