"""Watches ZooKeeper for changes to cordoned brokers, the throttle of plans, client quotas, client metrics
subscriptions, ACLs and delegation tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kreplica.membership.cordoned_brokers import CordonedBrokers
from kreplica.membership.plan_throttle import PlanThrottle
from kreplica.membership.quota_store import Quotas, QuotaStore
from kreplica.membership.settings.client_metrics import ClientMetrics, ClientMetricsReader
from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.zookeeper import ZooKeeperClient

if TYPE_CHECKING:
    from kreplica.membership.acl_store import AclStore
    from kreplica.membership.delegation_tokens.token_store import TokenStore
    from kreplica.security.acls.authorizer import AclAuthorizer


class Watches:
    """The watches of one broker; owned by the broker, started once the persistent znodes exist.

    :param authorizer: the authorizer that uses ACLs, if there is one.
    :param quotas_replaced: called with all client quotas after each change.
    :param client_metrics: receives all subscriptions after each change.
    :param tokens: reads and changes the delegation tokens; None if they are disabled.
    :ivar acls: reads and changes the ACLs; None without this authorizer.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        authorizer: AclAuthorizer | None,
        quotas_replaced: Callable[[Quotas], None],
        client_metrics: ClientMetrics,
        tokens: TokenStore | None = None,
    ) -> None:
        self.cordoned = CordonedBrokers(runtime.reactor, client)
        self.plan_throttle = PlanThrottle(runtime.reactor, client)
        self.quotas = QuotaStore(runtime.reactor, client, quotas_replaced)
        self.acls: AclStore | None = None
        subscriptions = ClientMetricsReader(runtime.reactor, client, client_metrics)
        self._all = [self.cordoned.watch, self.plan_throttle.watch, self.quotas.watch, subscriptions.watch]
        if authorizer is not None:
            # Imported only with the authorizer.
            from kreplica.membership.acl_store import AclStore

            self.acls = AclStore(runtime, client, authorizer)
            self._all.append(self.acls.watch)
        self.tokens = tokens
        if tokens is not None:
            self._all.append(tokens.watch)

    async def start(self) -> None:
        """Read everything, and watch for changes."""
        await gather([watch.start() for watch in self._all])

    def session_renewed(self) -> None:
        """Read everything again, because changes may have been missed."""
        self.quotas.forget()
        if self.tokens is not None:
            self.tokens.forget()
        for watch in self._all:
            watch.session_renewed()

    async def stop(self) -> None:
        """Stop watching."""
        for watch in self._all:
            watch.stop()
