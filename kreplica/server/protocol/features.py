"""Features in ApiVersions responses (KIP-584); a feature is advertised if all APIs that it requires are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.wire import messages


@dataclass(frozen=True, slots=True)
class Feature:
    """Versioned feature that brokers advertise.

    :param levels: lowest and highest supported level; the highest is finalized.
    :param needs: minimum served version of the APIs that the feature requires, by API key.
    """

    name: str
    levels: tuple[int, int]
    needs: Mapping[int, int]

    def is_served(self, table: Mapping[int, HandlerEntry]) -> bool:
        """Return whether the table serves all required APIs."""
        return all(key in table and table[key].versions_max >= version for key, version in self.needs.items())


TRANSACTION_VERSION = Feature(
    "transaction.version",
    (0, 2),
    # At level 2 clients do not send AddPartitionsToTxn and AddOffsetsToTxn; the brokers add partitions themselves.
    {messages.PRODUCE.key: 12, messages.END_TXN.key: 5, messages.TXN_OFFSET_COMMIT.key: 5},
)
"""KIP-890: at level 2 the producer's epoch is incremented with each transaction (levels: KIP-1022)."""

FEATURES = (TRANSACTION_VERSION,)

EPOCH = 0
"""Epoch of the finalized levels, which are constant; clients ignore levels without an epoch."""

LEVEL_0_FROM = 4
"""First version of ApiVersions whose clients accept a feature whose lowest level is 0."""


def features_response(table: Mapping[int, HandlerEntry], version: int) -> dict[str, Any]:
    """Return the feature fields of an ApiVersions response; empty if no feature is served.

    :param version: version of ApiVersions.
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
