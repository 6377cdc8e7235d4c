"""SASL mechanisms without I/O, for brokers and clients.

* ``exchange``: the interface of clients; ``mechanisms``: their names
* ``plain``: PLAIN; ``scram``: SCRAM-SHA-256 and SCRAM-SHA-512
* ``oauthbearer``: OAUTHBEARER; ``bearer_token``: the interface of validators (``kreplica.security.oauth``)
* ``jaas``: JAAS configurations in Kafka's settings
* ``credentials``: a client's credentials, from its configuration
"""
