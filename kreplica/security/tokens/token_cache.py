"""The current delegation tokens, with their secrets and SCRAM credentials."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection

from kreplica.security.sasl.scram import ITERATIONS_MIN, ScramCredential, TokenCredential
from kreplica.security.tokens.token import DelegationToken, hmac_of


class TokenCache:
    """The tokens that a broker has read.

    The SCRAM credentials of a token are computed when a client first authenticates with it, because each takes
    milliseconds.

    :param key: ``delegation.token.secret.key``.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[str, dict[str, ScramCredential]] = {}

    def __repr__(self) -> str:
        return f"<TokenCache, {len(self._tokens)} tokens>"

    @property
    def tokens(self) -> Collection[DelegationToken]:
        return self._tokens.values()

    def find(self, token_id: str) -> DelegationToken | None:
        """Return the token with this ID; None if there is none."""
        return self._tokens.get(token_id)

    def find_by_hmac(self, hmac: bytes) -> DelegationToken | None:
        """Return the token with this secret; None if there is none."""
        token_id = self._ids.get(hmac)
        return None if token_id is None else self._tokens[token_id]

    def hmac_of(self, token: DelegationToken) -> bytes:
        """Return the secret of a token."""
        return hmac_of(token.token_id, self._key)

    def put(self, token: DelegationToken) -> None:
        """Add a token, or replace its earlier state."""
        self._tokens[token.token_id] = token
        self._ids[self.hmac_of(token)] = token.token_id

    def remove(self, token_id: str) -> None:
        """Remove a token if it exists."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids[self.hmac_of(token)]
            self._credentials.pop(token_id, None)

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential for clients that authenticate with a token; None if it does not exist."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        computed = self._credentials.setdefault(token_id, {})
        if mechanism not in computed:
            hmac = self.hmac_of(token)
            # The salt is not secret, and it is the same on all brokers, so that clients can cache the salted password.
            salt = hashlib.sha256(hmac + mechanism.encode()).digest()[:16]
            password = b64encode(hmac).decode()
            computed[mechanism] = ScramCredential.of_password(mechanism, password, salt, ITERATIONS_MIN)
        return TokenCredential(token.owner.partition(":")[2], token.expires_ms, computed[mechanism])
