"""What a broker keeps in ZooKeeper about itself, and what it learns there.  Decides no leadership.

* ``registration`` persistent paths, cluster id, ``/brokers/ids/N``
* ``dynamic_settings`` settings that change while the cluster runs
* ``effective_topic`` from a topic's settings to what its logs are told
* ``producer_ids`` blocks of producer ids
* ``reachable`` from ZooKeeper's trouble to what a client is told
* ``incarnation`` since when its logs have lost nothing; ``strays`` logs on disk that are not its replicas any more
* ``controlled_shutdown`` hands its leaderships over before it stops
* ``watching`` what is read again whenever it changes: ``cordoned`` brokers that get no new replicas, ``plan_throttle``
  how fast replicas that are being added are copied
* ``log_dir_events`` tells the controller of a log directory that failed
* ``session`` registers anew when the session with ZooKeeper was lost; ``previous_session`` ends a killed broker's
"""

from kreplica.membership.dynamic_settings import BROKER_RESOURCE, TOPIC_RESOURCE, DynamicSettings

__all__ = ["BROKER_RESOURCE", "TOPIC_RESOURCE", "DynamicSettings"]
