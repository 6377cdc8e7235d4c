"""Reassignment plans: ``kreplica plan``, also for ``broker drain`` and ``topic shrink``."""
