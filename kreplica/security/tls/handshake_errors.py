"""Messages for OpenSSL's errors.  Imports no OpenSSL, so that connections without TLS do not load it."""

from __future__ import annotations

_OPENSSL_ERROR = "OpenSSL.SSL"


def is_tls_failure(error: BaseException | None) -> bool:
    """Return True if a connection was lost because of a TLS error, for example a rejected certificate."""
    return type(error).__module__ == _OPENSSL_ERROR


def tls_reason(error: BaseException | None) -> str:
    """Return the message of an error.

    :param error: any exception; the argument of an ``OpenSSL.SSL.Error`` is a list of (library, function, reason).
    """
    details = error.args[0] if error is not None and error.args else None
    if isinstance(details, list):
        return "; ".join(str(detail[-1]) for detail in details)
    return str(error) or type(error).__name__
