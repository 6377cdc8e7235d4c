"""The features that ApiVersions tells of (KIP-584): each is whole when all the APIs are served that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.server.protocol.request import HandlerEntry
from kreplica.wire import messages


@dataclass(frozen=True, slots=True)
class Feature:
    """What clients are told under one name.

    :param levels: the lowest and the highest level that this broker has; the highest is the one in force.
    :param needs: the versions that must be served for that: by API key, the lowest that will do.
    """

    name: str
    levels: tuple[int, int]
    needs: Mapping[int, int]

    def is_served(self, table: Mapping[int, HandlerEntry]) -> bool:
        """Whether the table has all that it needs."""
        return all(key in table and table[key].versions_max >= version for key, version in self.needs.items())


TRANSACTION_VERSION = Feature(
    "transaction.version",
    (0, 2),
    # A client that is told of level 2 leaves out AddPartitionsToTxn and AddOffsetsToTxn: the brokers do it for it.
    {messages.PRODUCE.key: 12, messages.END_TXN.key: 5, messages.TXN_OFFSET_COMMIT.key: 5},
)
"""KIP-890: at level 2 the producer's epoch grows with each transaction (KIP-1022 has the levels)."""

FEATURES = (TRANSACTION_VERSION,)

EPOCH = 0
"""Of the levels in force: they change with the program only, and a client takes no note of levels without an epoch."""

LEVEL_0_FROM = 4
"""Older clients fail on a feature that starts at level 0."""


def features_answer(table: Mapping[int, HandlerEntry], version: int) -> dict[str, Any]:
    """The fields of an ApiVersions answer that tell of features; empty where there are none to tell of.

    :param version: of ApiVersions.
    """
    served = [feature for feature in FEATURES if feature.is_served(table)]
    if not served:
        return {}
    return {
        "supported_features": [
            {"name": feature.name, "min_version": feature.levels[0], "max_version": feature.levels[1]}
            for feature in served
            if version >= LEVEL_0_FROM or feature.levels[0] > 0
        ],
        "finalized_features_epoch": EPOCH,
        "finalized_features": [
            {"name": feature.name, "min_version_level": feature.levels[1], "max_version_level": feature.levels[1]}
            for feature in served
        ],
    }
