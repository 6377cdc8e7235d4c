"""Keys of an authorization server: read again on schedule, and when a token was signed with an unknown key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.runtime.offload import Offload
from kreplica.runtime.shared_coroutine import SharedCoroutine
from kreplica.security.oauth.key_set import KeySet

log = Logger()

ON_DEMAND_INTERVAL_S = 10.0
"""Minimum time between two reads that are caused by unknown key IDs, since anyone can invent key IDs."""

WAITERS_MAX = 1000
"""Maximum number of tokens that wait for the keys to be read; further tokens are rejected at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySchedule:
    """Schedule for reading keys.

    :param refresh_s: time between two reads.
    :param backoff_s: returns the delay for a number of consecutive failures.
    """

    refresh_s: float
    backoff_s: Callable[[int], float]


class KeySource:
    """Reads keys in the background; while reading fails, the last keys remain valid.

    :param place: name of the source in the log and in metrics.
    :param read: returns the content of the key set.
    :ivar keys: empty until they are read for the first time.
    :ivar failures: number of consecutive failures.
    """

    def __init__(
        self,
        place: str,
        read: Callable[[], Awaitable[bytes]],
        reactor: Reactor,
        offload: Offload,
        schedule: KeySchedule,
        keys: KeySet | None = None,
    ) -> None:
        self.keys = keys or KeySet()
        self.failures = 0
        self.place = place
        self._read = read
        self._reactor = reactor
        self._offload = offload
        self.schedule = schedule
        self._reading: SharedCoroutine[None] | None = None
        self._waiters = 0
        self._timer: IDelayedCall | None = None
        self._demand_at_s = 0.0
        self._stopped = False

    def start(self) -> None:
        """Read the keys now if there are none yet, otherwise on schedule."""
        if self.keys.keys:
            self._read_after(self.schedule.refresh_s)
        else:
            self._begin()

    def stop(self) -> None:
        """Stop reading; waiting validations fail."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reading is not None:
            self._reading.cancel()

    async def refresh_for_unknown_key(self) -> None:
        """Read the keys again, unless they were read a moment ago; return when they have been read."""
        if self._stopped or self._waiters >= WAITERS_MAX:
            return
        reading = self._reading
        if reading is None:
            now_s = self._reactor.seconds()
            if now_s < self._demand_at_s:
                return
            self._demand_at_s = now_s + ON_DEMAND_INTERVAL_S
            reading = self._begin()
        self._waiters += 1
        try:
            await reading.wait()
        finally:
            self._waiters -= 1

    def _begin(self) -> SharedCoroutine[None]:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        reading = SharedCoroutine(self._refresh())
        if not reading.is_over:
            self._reading = reading
            # This extra waiter keeps the read going if all waiting clients disconnect.
            reading.wait().addErrback(lambda failure: failure.trap(CancelledError) and None)
        return reading

    async def _refresh(self) -> None:
        try:
            content = await self._read()
            keys = await self._offload.run(KeySet.parse, content)
        except CancelledError:
            raise
        except Exception as error:  # whatever the error is, the keys must be read again
            self.failures += 1
            delay_s = self.schedule.backoff_s(self.failures)
            log.warn(
                "cannot read the signing keys from {place}; next attempt in {delay:.1f} s: {reason}",
                place=self.place,
                delay=delay_s,
                reason=str(error),
            )
        else:
            self._replace(keys)
            self.failures, delay_s = 0, self.schedule.refresh_s
        finally:
            self._reading = None
        if not self._stopped:
            self._read_after(delay_s)

    def _replace(self, keys: KeySet) -> None:
        if keys.keys != self.keys.keys or self.failures:
            ignored = "".join(f"; {reason}" for reason in dict.fromkeys(keys.ignored))
            text = "read {count} signing keys from {place}{ignored}"
            log.info(text, count=len(keys.keys), place=self.place, ignored=ignored)
        self.keys = keys

    def _read_after(self, delay_s: float) -> None:
        self._timer = self._reactor.callLater(delay_s, self._begin)
