"""Administrators change passwords, users, ACLs and quotas while clients use them."""

from __future__ import annotations

from random import Random

from kreplica.cluster.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaEntity
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.security.acls.acl import Acl, Permission, ResourcePattern
from kreplica.testing.storms.expected_state import RequestResult
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.testing.storms.security.secured_clients import SecuredClients
from kreplica.testing.storms.security.users import User

BYTE_RATES = (500.0, 2_000.0, 20_000.0)
PERCENTAGES = (0.0, 1.0, 50.0)
DENY_CHANCE = 0.4
DELETED_ALONE_CHANCE = 0.5


def clients_of(run: ReplicatedRun) -> SecuredClients:
    return next(companion for companion in run.companions if isinstance(companion, SecuredClients))


def _random_user(run: ReplicatedRun, random: Random) -> User:
    return random.choice(clients_of(run).users)


def change_password(run: ReplicatedRun, random: Random) -> End:
    """Set a new password, which the user's clients learn at the end."""
    user = _random_user(run, random)
    return _set_password(run, random, user)


def _set_password(run: ReplicatedRun, random: Random, user: User) -> End:
    run.note(f"{user.name} gets a new password")
    password, done = clients_of(run).administrator.set_password(random, user)
    done.addCallback(_note_result, run, f"the new password of {user.name}")

    def end() -> None:
        if user.passwords[-1] == password:
            run.note(f"the clients of {user.name} learn the new password")
            user.client_password = password

    return end


def delete_user(run: ReplicatedRun, random: Random) -> End:
    """Delete a user; create it again at the end, with a new password that its clients know."""
    user = _random_user(run, random)
    run.note(f"user {user.name} is deleted")
    done = clients_of(run).administrator.delete_user(random, user)
    done.addCallback(_note_result, run, f"the deletion of {user.name}")
    return lambda: _set_password(run, random, user)()


def withdraw_acl(run: ReplicatedRun, random: Random) -> End:
    """Delete an ACL that a client needs, or deny its operation; restore the permission at the end."""
    clients = clients_of(run)
    administrator = clients.administrator
    pattern, acl = random.choice(clients.grants)
    if random.random() < DENY_CHANCE:
        denied = random.choice(clients.patterns_over(pattern))
        denial = acl._replace(permission=Permission.DENY)
        run.note(f"{_text(denied, denial)} is created")
        administrator.create_acl(random, denied, denial).addCallback(_note_result, run, "the denial")

        def end_denial() -> None:
            administrator.delete_acl(random, denied, denial).addCallback(
                _note_result, run, f"the deletion of {_text(denied, denial)}"
            )

        return end_denial
    run.note(f"{_text(pattern, acl)} is deleted")
    administrator.delete_acl(random, pattern, acl).addCallback(_note_result, run, "the deletion")

    def end() -> None:
        administrator.create_acl(random, pattern, acl).addCallback(
            _note_result, run, f"the creation of {_text(pattern, acl)}"
        )

    return end


def set_quota(run: ReplicatedRun, random: Random) -> End:
    """Set a quota that throttles a user, a client ID or all users; remove it at the end."""
    clients = clients_of(run)
    name = random.choice((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE))
    value = random.choice(PERCENTAGES if name == REQUEST_PERCENTAGE else BYTE_RATES)
    entity = random.choice(clients.quota_entities)
    run.note(f"{name} of {_entity_text(entity)} is set to {value}")
    clients.administrator.set_quota(random, entity, name, value).addCallback(_note_result, run, "the quota")

    def end() -> None:
        clients.administrator.set_quota(random, entity, name, None).addCallback(
            _note_result, run, f"the removal of {name} of {_entity_text(entity)}"
        )

    return end


def restart_broker(run: ReplicatedRun, random: Random) -> End | None:
    """Kill the leader of a partition that authenticated clients use.

    When it starts again at the end, it reads all users, ACLs and quotas.
    """
    leader = run.cluster.leader_of(*random.choice(clients_of(run).sources))
    if leader not in run.cluster.brokers or not run.machine(leader).running:
        return None
    run.kill(leader)
    return lambda: run.launch(leader)


def _note_result(result: RequestResult, run: ReplicatedRun, text: str) -> None:
    run.note(f"{text}: {result.value}")


def _text(pattern: ResourcePattern, acl: Acl) -> str:
    return (
        f"{acl.permission.name.lower()} {acl.principal} {acl.operation.name.lower()} "
        f"{pattern.pattern.name.lower()} {pattern.type.name.lower()} {pattern.name}"
    )


def _entity_text(entity: QuotaEntity) -> str:
    names = [
        f"{kind} {'(default)' if name == DEFAULT_ENTITY else name}"
        for kind, name in (("user", entity.user), ("client ID", entity.client_id))
        if name is not None
    ]
    return ", ".join(names)
