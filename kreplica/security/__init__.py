"""Encryption of connections, for brokers and clients.

* ``tls``: keys and certificates from Kafka's ``ssl.*`` settings, OpenSSL contexts, principals of certificates

OpenSSL is imported only by the modules of ``tls``, when a listener or client uses TLS.
"""
