"""Reassignment plans: ``kreplica plan``, which ``broker drain`` and ``topic shrink`` use too."""
