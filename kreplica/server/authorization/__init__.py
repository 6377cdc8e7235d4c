"""Authorization of requests by an ``IAuthorizer``; unused if every client may do everything.

* ``permissions``: queries the authorizer; an error counts as a rejection
* ``rules``: table of the permissions that each API requires
* ``request_rules``: requests allowed or rejected as a whole; ``row_rules``: requests checked row by row
* ``error_rows``: response rows of rejected request rows
* ``metadata``, ``produce``, ``offset_fetch``, ``coordinators``, ``create_topics``, ``add_partitions``: APIs with
  checks of their own
* ``guarded_handlers``: adds the checks to a table of handlers

Fetch checks each partition itself, because a fetch session can name partitions that the request does not.
"""

from kreplica.server.authorization.guarded_handlers import guarded
from kreplica.server.authorization.permissions import Permissions

__all__ = ["Permissions", "guarded"]
