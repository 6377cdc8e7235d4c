"""Public names of the errors that the client library raises."""

from kreplica.client_core.errors import *  # noqa: F403
from kreplica.client_core.errors import __all__ as __all__
