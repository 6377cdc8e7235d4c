"""Bearer tokens of OAuth 2 (JWT): validation by brokers, and login of clients (KIP-255, KIP-768).

* ``jwt_validator``: validation with the keys of an authorization server; ``key_set``: these keys
* ``key_source``: reads the keys again on schedule, and when a token was signed with an unknown key
* ``unsecured``: Kafka's unsigned tokens
* ``claims``: claims of tokens
* ``login``: a client's tokens, from a token endpoint or a file; ``login_options``: its settings
* ``token_requests``: requests to a token endpoint, without I/O; ``refresh_times``: when a token is replaced
* ``endpoint_urls``: URLs in settings; ``http_exchange``: HTTP requests through the reactor

PyJWT is imported only by ``jwt_validator`` and ``key_set``.
"""
