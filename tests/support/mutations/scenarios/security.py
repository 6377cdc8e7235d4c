"""Permissions that change while clients use them."""

from __future__ import annotations

from kreplica.testing.storms.faults import SECURITY_FAULTS
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import make_plan
from kreplica.testing.storms.storm import Storm

OPTIONS = StormOptions(seconds=20.0, messages_per_s=10, fault_interval_s=0.6, overlap=4, security=True)
CHANGES = ("change password", "delete user", "withdraw ACL", "set quota")


def rights_change_under_load(seed: int) -> None:
    """Passwords, users, ACLs and quotas change while some clients use old passwords, sessions and permissions."""
    storm = Storm(seed, OPTIONS)
    storm.execute(make_plan(seed, OPTIONS, {name: SECURITY_FAULTS[name][1] for name in CHANGES}))
    storm.run.converge()
