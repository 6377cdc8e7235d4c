"""Registration of a broker in ZooKeeper, and the settings and state it reads there.

* ``registration``: persistent paths, cluster id, ``/brokers/ids/N``
* ``session``: registers again after a lost session; ``stale_session``: closes the session of a killed process
* ``startup_retries``: retries of startup steps while ZooKeeper is unavailable
* ``incarnation``: detects lost data since an earlier start; ``stray_logs``: deletes logs of unassigned replicas
* ``settings/``: dynamic configurations of topics and brokers, and client metrics subscriptions
* ``acl_store``, ``quota_store``, ``scram_credentials``, ``scram_writer``: ACLs, client quotas and SCRAM credentials
* ``znode_watch``: re-reads a znode after changes; used by ``cordoned_brokers`` and ``plan_throttle``
* ``controller_lookup``: reads the current controller; ``follower_incarnations``: verifies fetching followers
* ``controlled_shutdown``: hands leadership over before shutdown; ``log_dir_events``: reports failed log directories
* ``producer_ids``: blocks of producer ids
* ``znode_protection/``: ACLs of znodes
* ``delegation_tokens/``: reads, changes and expires delegation tokens
* ``zookeeper_errors``: maps ZooKeeper errors to Kafka error codes
"""

from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.membership.settings.settings_writer import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    TOPIC_RESOURCE,
    SettingsWriter,
)

__all__ = ["BROKER_RESOURCE", "CLIENT_METRICS_RESOURCE", "TOPIC_RESOURCE", "DynamicSettings", "SettingsWriter"]
