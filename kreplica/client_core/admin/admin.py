"""``Admin``: all administration requests."""

from __future__ import annotations

from kreplica.client_core.admin.brokers import Brokers
from kreplica.client_core.admin.configs import Configs
from kreplica.client_core.admin.delegation_tokens import DelegationTokens
from kreplica.client_core.admin.group_offsets import GroupOffsets
from kreplica.client_core.admin.groups import Groups
from kreplica.client_core.admin.log_dirs import LogDirs
from kreplica.client_core.admin.reassignments import Reassignments
from kreplica.client_core.admin.topics import Topics
from kreplica.client_core.admin.transactions import Transactions


class Admin(Brokers, Topics, Configs, GroupOffsets, Groups, Reassignments, LogDirs, Transactions, DelegationTokens):
    """Administration of a cluster; it has no resources of its own and need not be closed.

    Methods for several items return ``Outcomes``, with a result or an error per item; methods for one item raise the
    error.  Requests are routed and retried for at most ``timeout_s`` seconds; the default is ``operation_timeout_s``.

    :param cluster: the cluster's client core; the caller must close it.
    """
