"""Authorization: puts handlers behind a gate that asks an ``IAuthorizer``; unused if everything is allowed.

* ``gate`` asks the authorizer and contains its failures
* ``rules`` the table of what each API needs; ``rows`` the rows of refusals
* ``whole`` requests that are allowed or refused as a whole; ``listed`` requests whose rows are checked one by one
* ``metadata`` Metadata requests; ``produce`` Produce requests
* ``guarding`` puts the gate before a table of handlers

Fetch checks each partition itself, because a fetch session can name partitions that the request does not.
"""

from kreplica.server.authorization.gate import Gate
from kreplica.server.authorization.guarding import guarded

__all__ = ["Gate", "guarded"]
