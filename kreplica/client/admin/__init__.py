"""Administering a cluster.

* ``admin``: ``Admin``, which has the methods of all subjects
* ``outcomes``: what became of each item of a request over several
* ``asking``: who is asked, and how often
* ``topics``: making, describing, widening and deleting topics
* ``configs``: settings of topics and brokers
* ``groups``: listing, describing and deleting groups, and putting members out
"""

from kreplica.client.admin.admin import Admin
from kreplica.client.admin.configs import (
    AlterOperation,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceKind,
)
from kreplica.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from kreplica.client.admin.outcomes import Outcomes
from kreplica.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)

__all__ = [
    "Admin",
    "AlterOperation",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "Outcomes",
    "PartitionDescription",
    "ResourceKind",
    "TopicDescription",
    "TopicListing",
]
