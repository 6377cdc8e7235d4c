"""Changes the ACLs of the znodes of a cluster, as Kafka's ``zookeeper-security-migration.sh`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kreplica.membership.znode_protection.acls import ROOT_PATHS
from kreplica.runtime.gather import gather
from kreplica.zookeeper import Acl, NoNode, ZooKeeperClient

BATCH_SIZE = 500
"""Maximum number of requests in flight."""


async def replace_acls(client: ZooKeeperClient, acl_of: Callable[[str], tuple[Acl, ...]]) -> int:
    """Replace the ACLs of the root (or chroot) and of all znodes of the cluster, but not of other programs' znodes.

    :param acl_of: returns the ACL for a path.
    :return: the number of znodes whose ACL was replaced.
    :raise NoAuth: a znode belongs to another user; the ACLs of other znodes may have changed already.
    """
    count = await _replace(client, ["/"], acl_of)
    level: list[str] = list(ROOT_PATHS)
    while level:
        below: list[str] = []
        for start in range(0, len(level), BATCH_SIZE):
            paths = level[start : start + BATCH_SIZE]
            count += await _replace(client, paths, acl_of)
            for path, names in zip(paths, await gather([_children(client, path) for path in paths]), strict=True):
                below += [f"{path}/{name}" for name in names]
        level = below
    return count


async def _replace(client: ZooKeeperClient, paths: Sequence[str], acl_of: Callable[[str], tuple[Acl, ...]]) -> int:
    return sum(await gather([_replace_one(client, path, acl_of(path)) for path in paths]))


async def _replace_one(client: ZooKeeperClient, path: str, acl: tuple[Acl, ...]) -> bool:
    try:
        await client.set_acl(path, acl)
    except NoNode:
        return False
    return True


async def _children(client: ZooKeeperClient, path: str) -> list[str]:
    try:
        return await client.get_children(path)
    except NoNode:
        return []
