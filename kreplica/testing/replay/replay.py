"""Repeats a controller's run from its journal and compares its outputs.

for outcome in replay_all(read_journals(OsDisk(), "data/broker-1")):
    print(outcome.events, outcome.decisions, outcome.difference)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kreplica.controller.controller import Controller
from kreplica.controller.journal.file_header import run_to_completion, state_of
from kreplica.controller.journal.lines import EntryFields
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import recorded
from kreplica.controller.journal.value_json import plain
from kreplica.testing.replay.environment import ReplayEnvironment
from kreplica.testing.replay.initial_state import InitialState
from kreplica.testing.replay.reading import JournalFile, JournalUnreadable
from kreplica.testing.replay.script import Difference, Script

REASON_MAX = 200

WRITES = ("multi", "create", "delete")

EntryCallback = Callable[[Controller, EntryFields], None]
"""Called with the controller and each equal entry, at the moment the controller reaches this entry."""


@dataclass(slots=True)
class Outcome:
    """Result for one file.

    :ivar events: number of handled events.
    :ivar writes: number of requests that change ZooKeeper.
    :ivar commands: number of requests to brokers.
    :ivar entries: number of equal entries.
    :ivar difference: the first difference, or None.
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

    def count(self, line: EntryFields) -> None:
        kind = line.get("out")
        self.entries += 1
        self.events += kind == "event"
        self.writes += kind in WRITES
        self.commands += kind == "command"


class Replay:
    """Replay of one file.

    :param until: number of the last event to repeat; None for all.
    :raise JournalUnreadable: this version does not support an entry; also raised by ``run`` and ``steps``.
    """

    def __init__(self, file: JournalFile, on_entry: EntryCallback | None = None, until: int | None = None) -> None:
        self.outcome = Outcome(file)
        self._on_entry = on_entry
        self._until = until
        self._script = Script(file.lines, self._entry_matched)
        with self.errors_as_unreadable(file.head):
            self._environment = environment = ReplayEnvironment(self._script, file.head["config"])
            environment.now_s = file.head["s"]
            self._journal = Journal(self._script, lambda: environment.now_s)
            dependencies = recorded(environment.dependencies, self._journal)
            self.controller = environment.controller = Controller(dependencies, self._journal)
            if file.state is not None:
                InitialState(environment, self._journal, file.state).restore()

    def run(self) -> Outcome:
        """Repeat the run to its end or to the first difference."""
        for _ in self.steps():
            pass
        return self.outcome

    def steps(self) -> Iterator[None]:
        """Repeat the run; yield after each input and the outputs that directly follow from it."""
        script = self._script
        script.muted = False
        while (line := script.next) is not None and not self._is_over:
            if "in" in line:
                with self.errors_as_unreadable(line):
                    self._environment.perform(line)
            else:
                script.no_output()
            self.outcome.difference = script.difference
            yield

    @contextmanager
    def errors_as_unreadable(self, line: EntryFields) -> Iterator[None]:
        """Convert every exception in the block, even from the controller, to an error that names a line of the journal.

        :raise JournalUnreadable: any exception.
        """
        try:
            yield
        except JournalUnreadable:
            raise
        except Exception as error:
            file = self.outcome.file
            reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
            text = f"line {line['n'] + 1} is not a valid input of a controller: {reason}"
            raise JournalUnreadable(f"{file.path}: {text} (written by kreplica {file.head.get('kreplica')})") from error

    @property
    def _is_over(self) -> bool:
        return self._until is not None and self._script.event > self._until

    def _entry_matched(self, line: EntryFields) -> None:
        if not self._is_over:
            self.outcome.count(line)
            if self._on_entry is not None:
                self._on_entry(self.controller, line)

    def compare_end(self, next_file: JournalFile) -> None:
        """Compare the controller's state with the snapshot in the next file, if that continues this one."""
        if not next_file.continues(self.outcome.file) or self.outcome.difference is not None or self._is_over:
            return
        state = json.loads(json.dumps(run_to_completion(state_of(self.controller, self._journal)), default=plain))
        if state != next_file.state:
            self.outcome.difference = Difference(self._script.event, next_file.state, state)


def replay_all(
    files: Sequence[JournalFile], on_entry: EntryCallback | None = None, until: int | None = None
) -> Iterator[Outcome]:
    """Replay the files of one broker in order; compare the end of each with the start of the file that continues it."""
    for file, next_file in zip(files, [*files[1:], None], strict=True):
        replay = Replay(file, on_entry, until)
        replay.run()
        if next_file is not None:
            replay.compare_end(next_file)
        yield replay.outcome
