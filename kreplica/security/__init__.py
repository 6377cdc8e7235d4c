"""Encryption, authentication and authorization, for brokers and clients.

* ``tls``: keys and certificates from Kafka's ``ssl.*`` settings, OpenSSL contexts, principals from certificates
* ``sasl``: authentication mechanisms; ``oauth``: bearer tokens
* ``acls``: access control lists and authorization decisions; ``tokens``: delegation tokens
* ``passwords``: encryption of passwords in dynamic settings
* ``client_config``: client settings, named as in Kafka's Java clients

OpenSSL is imported only by the modules of ``tls``, when a listener or client uses TLS.
"""
