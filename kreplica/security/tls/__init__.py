"""TLS with Kafka's ``ssl.*`` settings.

* ``options``: the values of the settings, for one listener or client
* ``zookeeper_options``: the same for ZooKeeper, which has other rules for stores
* ``stores``: keys and certificates, from PEM and PKCS12
* ``contexts``: OpenSSL contexts, and the verification of servers by clients
* ``development_ca``: certificates for development and tests
* ``handshake_errors``: texts of OpenSSL's errors
* ``changes``, ``handshakes``: rules for changes of certificates at run time, and their test handshakes
* ``expiry``: time until certificates expire
* ``reloading``: TLS of a server that reads changed certificates again
* ``listener``: TLS of one listener
* ``distinguished_names``: subjects of certificates as Java writes them (RFC 2253)
* ``principal_rules``: principals of certificates (``ssl.principal.mapping.rules``)
"""
