"""``Admin``: all that can be asked of a cluster besides records."""

from __future__ import annotations

from kreplica.client_core.admin.brokers import Brokers
from kreplica.client_core.admin.configs import Configs
from kreplica.client_core.admin.group_offsets import GroupOffsets
from kreplica.client_core.admin.groups import Groups
from kreplica.client_core.admin.log_dirs import LogDirs
from kreplica.client_core.admin.reassignments import Reassignments
from kreplica.client_core.admin.topics import Topics
from kreplica.client_core.admin.transactions import Transactions


class Admin(Brokers, Topics, Configs, GroupOffsets, Groups, Reassignments, LogDirs, Transactions):
    """All that can be asked of a cluster besides records; it owns nothing, so it need not be closed.

    A method over several items gives ``Outcomes``, each item's own; one over a single item raises.  Requests go where
    they must, and are tried again while that may help, for ``timeout_s`` seconds at most: the options'
    ``operation_timeout_s`` unless given.

    :param cluster: shared with whoever else uses it, who closes it.
    """
