"""Protected ZooKeeper of a simulated cluster: users of its servers, and the settings of brokers that authenticate."""

from __future__ import annotations

USERS = {"broker": "password of the broker"}
"""Passwords by user, for SASL DIGEST-MD5."""

_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"

OVERRIDES = (
    "zookeeper.set.acl=true",
    f'kreplica.zookeeper.sasl.jaas.config={_LOGIN} required username="broker" password="{USERS["broker"]}";',
)
"""Settings of brokers that authenticate and protect their znodes."""
