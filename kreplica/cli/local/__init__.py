"""The cluster on this machine: ``kreplica start``, ``stop`` and ``status``."""
