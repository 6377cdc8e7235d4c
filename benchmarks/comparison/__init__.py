"""The same load on kreplica and on Apache Kafka, alternating on the same machine.

* ``scenarios`` the scenarios as data, with their targets
* ``deployments`` the systems: starting, measuring and stopping them
* ``measuring`` measures each kind of scenario on any system
* ``fail_over`` failures of brokers; ``leaders`` partition leaders in a broker's metadata
"""
