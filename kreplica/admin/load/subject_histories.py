"""History of topics or groups: ring buffers for the most active ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest

from kreplica.admin.load.history import COARSE_MS, COARSE_POINTS, History, Span

SUBJECTS_MAX = 200
"""Maximum number of topics, and of groups, with a history on each broker."""

REPLACEMENTS_MAX = 20
"""Maximum number of subjects per minute that lose their history to more active ones."""

ADVANTAGE = 1.5
"""A subject must be this many times more active to replace another one, so that similar subjects do not alternate."""

DECAY = 0.5 ** (1 / 180)
"""Factor of the activity per minute: activity three hours ago has half the weight."""

KEPT_MS = COARSE_MS * COARSE_POINTS

TOPIC_SERIES: Mapping[str, tuple[str, str]] = {
    "records_in_rate": ("records/s", "Records appended per second."),
    "bytes_in_rate": ("bytes/s", "Bytes appended per second, as stored."),
    "bytes_out_rate": ("bytes/s", "Bytes per second that consumers fetched."),
    "size_bytes": ("bytes", "Size of the logs, each partition counted once."),
}
"""Unit and description of each series of a topic; the sum over all brokers is the topic's value."""

GROUP_SERIES: Mapping[str, tuple[str, str]] = {
    "lag": ("records", "Unread records, including all records of partitions without a committed offset."),
    "consumed_rate": ("records/s", "Growth of the committed offsets per second."),
    "members": ("members", "Members of the group."),
}
"""Unit and description of each series of a group, which its coordinator samples."""


class SubjectHistories:
    """Keeps the history of at most ``subjects_max`` topics or groups: those that were most active in the last hours.

    A subject takes 19 kB (topic) or 15 kB (group), allocated with its first sample. It is dropped six hours after its
    last sample.

    :param series: unit and description by name.
    """

    def __init__(self, series: Mapping[str, tuple[str, str]], subjects_max: int = SUBJECTS_MAX) -> None:
        self.series = series
        self._subjects_max = subjects_max
        self._histories: dict[str, History] = {}
        self._sampled_ms: dict[str, int] = {}
        self._activity: dict[str, float] = {}
        """Decaying total of the activity, by subject, for subjects with a history and active ones without."""
        self._waiting: set[str] = set()
        """Subjects without a history that were active since the last replacement."""
        self._replaced_minute = -1

    def __len__(self) -> int:
        return len(self._histories)

    @property
    def size_bytes(self) -> int:
        """Size of all buffers."""
        return sum(each.size_bytes for each in self._histories.values())

    def add(self, subject: str, at_ms: int, activity: float, values: Iterable[float | None]) -> None:
        """Add a sample.

        :param activity: a number by which subjects are compared, such as bytes per second.
        :param values: one for each series, in order; None if it is unknown.
        """
        history = self._histories.get(subject)
        if history is None and len(self._histories) < self._subjects_max:
            history = self._start(subject, at_ms)
        if history is not None:
            history.add(at_ms, dict(zip(self.series, values, strict=True)))
            self._sampled_ms[subject] = at_ms
        elif activity:
            self._waiting.add(subject)
        if activity:
            self._activity[subject] = self._activity.get(subject, 0.0) + activity

    def end_sample(self, at_ms: int) -> None:
        """Once a minute, drop old subjects, and replace the least active ones with more active ones."""
        minute = at_ms // COARSE_MS
        if minute == self._replaced_minute:
            return
        self._replaced_minute = minute
        for subject in [each for each, sampled_ms in self._sampled_ms.items() if at_ms - sampled_ms > KEPT_MS]:
            self._drop(subject)
        self._replace(at_ms)
        subjects = self._waiting.union(self._histories)
        self._activity = {name: value * DECAY for name, value in self._activity.items() if name in subjects}
        self._waiting = set()

    def _replace(self, at_ms: int) -> None:
        """Start histories of the most active subjects without one, in free slots or those of less active subjects."""
        waiting = nlargest(REPLACEMENTS_MAX, ((self._activity[name], name) for name in self._waiting))
        if not waiting:
            return
        kept = iter(sorted((self._activity.get(name, 0.0), name) for name in self._histories))
        for activity, subject in waiting:
            if len(self._histories) >= self._subjects_max:
                kept_activity, least_active = next(kept)
                if activity <= kept_activity * ADVANTAGE:
                    return
                self._drop(least_active)
            self._start(subject, at_ms)

    def _start(self, subject: str, at_ms: int) -> History:
        self._sampled_ms[subject] = at_ms
        history = self._histories[subject] = History(tuple(self.series), "f")
        return history

    def _drop(self, subject: str) -> None:
        del self._histories[subject], self._sampled_ms[subject]

    def read(self, subject: str, names: Iterable[str], span: Span) -> dict[str, dict[str, list[float | None]]] | None:
        """Return mean and maximum of each point, by series; None for a subject without a history."""
        history = self._histories.get(subject)
        return None if history is None else history.read(names, span)
