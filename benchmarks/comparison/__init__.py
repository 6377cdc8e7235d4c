"""The same work on kreplica and on Apache Kafka, on the same machine, in turns.

* ``scenarios`` what is done, as data, with the targets
* ``deployments`` the systems under measurement: started, looked at, stopped
* ``measuring`` how each kind of scenario is measured on any of them
* ``fail_over`` what happens when a broker goes; ``leaders`` who leads, as a broker tells
"""
