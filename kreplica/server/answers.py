"""Answers that take a while: a coroutine's result becomes the answer of its request."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.server.request import Request

log = Logger()


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
