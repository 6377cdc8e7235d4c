"""The same work on kreplica and on Apache Kafka, alternating on the same machine.

* ``scenarios`` the work as data, with its targets
* ``deployments`` the systems: starting, measuring and stopping them
* ``measuring`` how each kind of scenario is measured on any system
* ``fail_over`` failures of brokers; ``leaders`` partition leaders in a broker's metadata
"""
