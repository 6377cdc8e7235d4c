"""SASL mechanisms without I/O, for brokers and clients.

* ``exchange``: the interfaces of all mechanisms; ``mechanisms``: their names
* ``plain``: PLAIN; ``scram``: SCRAM-SHA-256 and SCRAM-SHA-512
* ``jaas``: JAAS configurations of Kafka's settings
* ``credentials``: credentials of a client, from its configuration
"""
