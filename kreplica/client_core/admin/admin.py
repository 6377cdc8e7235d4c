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
    """Administration of a cluster; it holds no resources and need not be closed.

    A method for several items returns ``Outcomes``, with a result or an error per item; a method for one item raises.
    Requests are routed and retried, for ``timeout_s`` seconds at most; ``operation_timeout_s`` by default.

    :param cluster: the cluster's client core; its owner closes it.
    """
