"""Registers the ``kreplica`` command with ``twistd``; the code is in ``kreplica.service``."""

from twisted.application.service import ServiceMaker

kreplica = ServiceMaker(
    "kreplica",
    "kreplica.service",
    "A replicated log server that speaks the Kafka protocol.",
    "kreplica",
)
