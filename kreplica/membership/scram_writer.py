"""Writes SCRAM credentials of users to ZooKeeper, as Kafka does (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.settings.dynamic_settings import DynamicSettings, decode_settings
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.security.sasl.scram import ScramCredential
from kreplica.zookeeper import BadVersion, Create, MultiFailed, NodeExists, NoNode, Operation, SetData, ZooKeeperClient

CONFLICTS_MAX = 10
"""Maximum number of attempts for a change that conflicts with concurrent changes."""


class ScramWriter:
    """Changes credentials, with a notification to all brokers for each change.

    :param settings: each written change is applied to it at once.
    """

    def __init__(self, settings: DynamicSettings, client: ZooKeeperClient) -> None:
        self._settings = settings
        self._client = client

    async def change(
        self, user: str, changes: Mapping[str, ScramCredential | None], *, dry_run: bool = False
    ) -> Sequence[Operation]:
        """Set or delete the credentials of a user.

        :param changes: new credentials by mechanism; None to delete one.
        :param dry_run: True to write nothing.
        :return: the ZooKeeper operations; their data contains the SCRAM keys.
        :raise KafkaError: RESOURCE_NOT_FOUND if a credential to delete does not exist.
        """
        path = znodes.config_path("users", user)
        notification = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"
        change = Create(notification, documents.encode_config_change("users", user), sequence=True)
        for _ in range(CONFLICTS_MAX):
            version, config = await translate_errors(self._read(path))
            for mechanism, credential in changes.items():
                if credential is not None:
                    config[mechanism] = credential.format()
                elif config.pop(mechanism, None) is None:
                    raise KafkaError(
                        ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                    )
            data = documents.encode_config(config)
            write = Create(path, data) if version is None else SetData(path, data, version)
            operations = (write, change)
            if dry_run:
                return operations
            try:
                await translate_errors(self._client.multi(operations))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # concurrent change: compute the credentials again
            self._settings.apply("users", user, config)
            return operations
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"concurrent changes to user {user!r} prevented this one; try again"
        )

    async def _read(self, path: str) -> tuple[int | None, dict[str, str]]:
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, {}
        return stat.version, dict(decode_settings(path, data))
