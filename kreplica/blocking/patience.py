"""How long one operation goes on trying, and how long it waits in between."""

from __future__ import annotations

from kreplica.blocking.blocking_runtime import Surroundings
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp


class Patience:
    """Of one operation; made when it begins.

    :param timeout_s: of the whole operation, tries and waits.
    :param backoff_s: the first wait, about; ``backoff_s_max`` the longest.
    """

    def __init__(self, surroundings: Surroundings, timeout_s: float, backoff_s: float, backoff_s_max: float) -> None:
        self._surroundings = surroundings
        self._timeout_s = timeout_s
        self._backoff = backoff_s, backoff_s_max
        self._deadline_s = surroundings.clock() + timeout_s
        self._attempts = 0

    @property
    def left_s(self) -> float:
        """Seconds that are left; not below 0."""
        return max(0.0, self._deadline_s - self._surroundings.clock())

    def wait(self, error: ClientError) -> None:
        """Wait before the next try.

        :param error: what hindered the last one.
        :raise GaveUp: there is no time left for another.
        """
        self._attempts += 1
        wait_s = backoff_s(self._surroundings.random, self._attempts, *self._backoff)
        if wait_s >= self.left_s:
            raise GaveUp(f"nothing came of it in {self._timeout_s:g} s and {self._attempts} tries: {error}") from error
        self._surroundings.sleep(wait_s)
