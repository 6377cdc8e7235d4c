"""Answers that take a while: they wait for a coroutine, or until the broker knows its cluster."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.server.metadata import MetadataCache
from kreplica.server.request import Handler, Request

log = Logger()


NO_LEADER_HINT = {"leader_id": -1, "leader_epoch": -1}
"""The ``current_leader`` of an answer that does not send its client elsewhere."""

HELD_SECONDS_MAX = 10.0
"""After so long a request is answered with the little that is known."""


def answer_from(request: Request, coroutine: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Answer with what the coroutine returns; it is cancelled when the client goes away.

    A handler answers every error that it expects itself; one that it does not expect closes the connection and is
    logged with its traceback.
    """
    running = Deferred.fromCoroutine(coroutine)
    request.on_abandoned(running.cancel)

    def failed(failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            log.failure("{api} failed", failure, api=request.api.name)
            request.abort(f"{request.api.name} failed: {failure.getErrorMessage()}")

    running.addCallbacks(request.answer, failed)
    running.addErrback(lambda failure: log.failure("answering {api}", failure, api=request.api.name))


def once_known(metadata: MetadataCache, handle: Handler) -> Handler:
    """A handler whose requests are held back until a controller has told this broker who lives.

    A broker listens before it registers, since the controller has to reach it; a client that were told meanwhile that
    there are no brokers would not ask again for a long time.
    """

    def held(request: Request) -> None:
        if metadata.brokers:
            handle(request)
            return

        def serve(_: bool) -> None:
            if request.is_waiting:
                handle(request)

        def failed(failure: Failure) -> None:
            if failure.check(CancelledError) is None:
                log.failure("{api} failed", failure, api=request.api.name)
                request.abort(f"its {request.api.name} failed")

        waiting = metadata.wait_until(lambda: bool(metadata.brokers), HELD_SECONDS_MAX)
        request.on_abandoned(waiting.cancel)
        waiting.addCallback(serve).addErrback(failed)

    return held
