"""TLS with Kafka's ``ssl.*`` settings.

* ``options``: the values of the settings, for one listener or client
* ``zookeeper_options``: the same for ZooKeeper, whose rules for stores differ
* ``stores``: keys and certificates, from PEM and PKCS12
* ``contexts``: OpenSSL contexts, and the verification of servers by clients
* ``development_ca``: certificates for development and tests
* ``handshake_errors``: messages for OpenSSL's errors
* ``changes``, ``handshakes``: rules for changing certificates at run time, and the test handshakes that check them
* ``expiry``: time until certificates expire
* ``reloading``: TLS of a server that reloads changed certificates
* ``listener``: TLS of one listener
* ``distinguished_names``: subjects of certificates as Java writes them (RFC 2253)
* ``principal_rules``: principals from certificates (``ssl.principal.mapping.rules``)
"""
