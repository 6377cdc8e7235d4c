"""Asking other brokers' admin listeners, on behalf of whoever asks this one.

A request that was forwarded says so, and is answered where it arrives or not at all: nothing goes round in circles.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.interfaces import IConsumer
from twisted.python.failure import Failure
from twisted.web._newclient import RequestNotSent, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.addresses import peer_url
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerAnswer
from kreplica.errors import KreplicaError
from kreplica.runtime import Reactor
from kreplica.runtime.offload import Offload

if TYPE_CHECKING:
    from twisted.web.client import Agent, HTTPConnectionPool

FORWARDED = "X-Kreplica-Forwarded"

ANSWER_SECONDS_MAX = 5.0
"""So long another broker may take: one that is paused or cut off must not hold up the answer of all the others."""

ANSWER_BYTES_MAX = 32 * 1024 * 1024

SMALL_ANSWER_BYTES = 16 * 1024
"""An answer of at most this size is checked at once; a larger one away from the reactor."""

UNDER_WAY_MAX = 100
"""Requests to other brokers that are not answered yet."""

CONNECTIONS_MAX = 4
"""That are kept open to one broker while nothing is asked."""

MISDIRECTED_REQUEST = 421

Here = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What several brokers said.

    :param documents: by broker, in order; this broker's own among them.
    :param problems: a sentence for each broker that did not answer, for the member of that name.
    """

    documents: Mapping[int, Any]
    problems: Sequence[str]


class OtherBrokers(Protocol):
    """What a resource needs of the rest of the cluster (``Forwarding``; tests have others)."""

    async def ask(
        self,
        broker_id: int,
        call: Call,
        path: str,
        answer: PeerAnswer,
        *,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> Any: ...

    async def ask_all(
        self,
        call: Call,
        path: str,
        answer: PeerAnswer,
        here: Here,
        *,
        query: Mapping[str, Any] | None = None,
        each: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> Answers: ...


class AnswerTooLarge(KreplicaError):
    """More came than anybody should keep."""


_NO_ANSWER = (ConnectError, DNSLookupError, ResponseFailed, RequestNotSent, AnswerTooLarge)


@implementer(IBodyProducer)
class _Body:
    """A body that is all there; the library's own would ask for the process's reactor."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.length = len(content)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._content)
        return succeed(None)

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...


class Forwarding:
    """Owned by the admin API of one broker; closed with it.

    :param offload: reads large answers.
    :param registrations: who lives, and where each has its admin listener.
    :param trusted: what decides whether another broker's certificate is trusted, where they use TLS; None for what the
        system trusts.
    """

    def __init__(
        self,
        reactor: Reactor,
        offload: Offload,
        broker_id: int,
        registrations: Registrations,
        *,
        trusted: IPolicyForHTTPS | None = None,
        timeout_s: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._reactor: Any = reactor
        self._offload = offload
        self._broker_id = broker_id
        self._registrations = registrations
        self._timeout_s = timeout_s
        self._trusted = trusted
        self._pool: HTTPConnectionPool | None = None
        self._under_way: dict[Deferred[Any], None] = {}
        self._closed = False

    async def close(self) -> None:
        """Ask nobody any more; what is under way fails, and connections are closed."""
        self._closed = True
        for waiting in list(self._under_way):
            waiting.cancel()
        if self._pool is not None:
            await self._pool.closeCachedConnections()

    # --- one broker --------------------------------------------------------------------------------------------------

    async def ask(
        self,
        broker_id: int,
        call: Call,
        path: str,
        answer: PeerAnswer,
        *,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> Any:
        """Ask one other broker.

        :param call: that of the caller: its authorization goes with it.
        :param path: of the API, percent-encoded, without a query.
        :param answer: the route's answer.
        :param query: parameters; those that are None are left out.
        :param body: becomes JSON; None for none.
        :return: the answer's document; None where it has no body.
        :raise Problem: what that broker says is wrong, as it says it; or 421 for a call that was forwarded already,
            503 where the broker is not known to live, has no admin listener or too much is asked at once, 502 and 504
            where it does not answer, or not in time; 502 where its admin URL is not to be trusted (``peer_url``), or
            its answer is not that of the route.
        """
        if call.forwarded:
            raise Problem(
                MISDIRECTED_REQUEST,
                "misdirected",
                f"broker {self._broker_id} was asked by another broker for what broker {broker_id} has to say",
                what_to_do="Ask again: the office has just moved.",
            )
        url = await self._url_of(broker_id, with_token=call.authorization is not None)
        if self._closed or len(self._under_way) >= UNDER_WAY_MAX:
            why = "stops" if self._closed else f"waits for {len(self._under_way)} answers of other brokers already"
            raise Problem(503, "busy", f"broker {self._broker_id} {why}", what_to_do="Ask again in a moment.")
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        suffix = f"?{urlencode(given)}" if given else ""
        status, text = await self._answer_of(broker_id, method, f"{url.rstrip('/')}{path}{suffix}", call, body)
        if len(text) <= SMALL_ANSWER_BYTES:
            return answer.read(broker_id, status, text)
        return await self._offload.run(answer.read, broker_id, status, text)

    async def _url_of(self, broker_id: int, *, with_token: bool) -> str:
        registration = (await self._registrations.live()).get(broker_id)
        if registration is None:
            raise Problem(
                503,
                "BROKER_NOT_AVAILABLE",
                f"broker {broker_id} is not registered in ZooKeeper",
                what_to_do="Wait until it is back, or until another has taken its place.",
            )
        if registration.admin_url is None:
            raise Problem(
                503,
                "no admin listener",
                f"broker {broker_id} has no admin listener",
                what_to_do="Set kreplica.admin.listener on each broker; what needs no other broker is answered here.",
            )
        return peer_url(registration, registration.admin_url, with_token=with_token)

    async def _answer_of(self, broker_id: int, method: str, url: str, call: Call, body: Any) -> tuple[int, bytes]:
        exchange = Deferred.fromCoroutine(self._exchange(method, url, call, body))
        self._under_way[exchange] = None
        expired = []

        def expire() -> None:
            expired.append(True)
            exchange.cancel()

        timer = self._reactor.callLater(self._timeout_s, expire)
        try:
            return await exchange
        except (CancelledError, *_NO_ANSWER) as error:
            if expired:
                text = f"broker {broker_id} did not answer within {self._timeout_s:g} s"
                raise Problem(
                    504, "no answer in time", text, what_to_do="See whether it hangs or is cut off."
                ) from None
            if self._closed:
                raise Problem(503, "stopping", f"broker {self._broker_id} stops") from None
            if isinstance(error, CancelledError):
                raise
            text = f"broker {broker_id} cannot be asked at {url.partition('?')[0]}: {_reason(error)}"
            raise Problem(502, "no answer", text, what_to_do="See whether it runs and can be reached.") from None
        finally:
            self._under_way.pop(exchange, None)
            if timer.active():
                timer.cancel()

    @cached_property
    def _agent(self) -> Agent:
        """Made when another broker is first asked: its module brings TLS along, which takes 13 MB."""
        from twisted.web.client import Agent, HTTPConnectionPool

        self._pool = HTTPConnectionPool(self._reactor)
        self._pool.maxPersistentPerHost = CONNECTIONS_MAX
        policy = {} if self._trusted is None else {"contextFactory": self._trusted}
        return Agent(self._reactor, connectTimeout=self._timeout_s, pool=self._pool, **policy)

    async def _exchange(self, method: str, url: str, call: Call, body: Any) -> tuple[int, bytes]:
        headers = Headers({b"Accept": [b"application/json"], FORWARDED.encode(): [b"1"]})
        if call.authorization is not None:
            headers.addRawHeader(b"Authorization", call.authorization.encode())
        producer = None
        if body is not None:
            headers.addRawHeader(b"Content-Type", b"application/json")
            producer = _Body(json.dumps(body).encode())
        from treq import collect

        response = await self._agent.request(method.encode(), url.encode(), headers, producer)
        parts: list[bytes] = []
        size = 0

        def take(part: bytes) -> None:
            nonlocal size
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise AnswerTooLarge(f"its answer is larger than {ANSWER_BYTES_MAX} bytes")
            parts.append(part)

        await collect(response, take)
        return response.code, b"".join(parts)

    # --- all of them -------------------------------------------------------------------------------------------------

    async def ask_all(
        self,
        call: Call,
        path: str,
        answer: PeerAnswer,
        here: Here,
        *,
        query: Mapping[str, Any] | None = None,
        each: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> Answers:
        """Ask all brokers that live for the same, at the same time; this one by ``here``.

        A call that another broker forwarded is answered by this one alone.

        :param here: what this broker has to say.
        :param each: by broker, parameters that it is asked with beside ``query``.
        :return: who answered, and a sentence for each that did not.
        """
        if call.forwarded:
            return Answers({self._broker_id: await here()}, ())
        known = await self._registrations.live()
        others = [broker_id for broker_id in known if broker_id != self._broker_id]
        own = each or {}
        asked = [
            Deferred.fromCoroutine(self.ask(other, call, path, answer, query={**(query or {}), **own.get(other, {})}))
            for other in others
        ]
        gathered = DeferredList(asked, consumeErrors=True)
        try:
            documents = {self._broker_id: await here()}
            outcomes = await gathered
        except BaseException:
            gathered.cancel()
            raise
        problems = []
        for broker_id, (succeeded, outcome) in zip(others, outcomes, strict=True):
            if succeeded:
                documents[broker_id] = outcome
            else:
                problems.append(f"broker {broker_id}: {_why(outcome)}")
        return Answers(dict(sorted(documents.items())), problems)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    if isinstance(error, ResponseFailed):
        reasons = [failure.getErrorMessage() for failure in error.reasons]
        return reasons[-1] if reasons else "the connection was lost"
    return str(error) or type(error).__name__


def _why(failure: Failure) -> str:
    """A sentence; what nobody foresaw is no reason to hide what the others said."""
    return failure.value.detail if isinstance(failure.value, Problem) else failure.getErrorMessage()
