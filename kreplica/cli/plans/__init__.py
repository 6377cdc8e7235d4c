"""Reassignment plans: ``kreplica plan``, also used by ``broker drain`` and ``topic shrink``."""
