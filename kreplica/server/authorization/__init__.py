"""Who may do what: each handler behind a gate that asks an ``IAuthorizer``; a broker that allows all has none of it.

* ``gate`` asks, and goes on where the authorizer raises
* ``rules`` what each API needs, as a table; ``rows`` what refusals look like, row by row
* ``whole`` requests that are allowed or refused as one
* ``listed`` requests that name topics, groups and so on, of which some may be refused
* ``metadata`` Metadata, which shows what one may see; ``produce`` Produce
* ``guarding`` puts the gate before a table of handlers

Fetch asks for itself, at each partition that it reads: what it reads is named by its session, not by its requests.
"""

from kreplica.server.authorization.gate import Gate
from kreplica.server.authorization.guarding import guarded

__all__ = ["Gate", "guarded"]
