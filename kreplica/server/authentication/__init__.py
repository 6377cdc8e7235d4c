"""Authentication of clients with SASL.

* ``sasl_listener``: a listener whose connections authenticate
* ``sasl_config``: its configuration
* ``sasl_session``: the authentication of one connection
"""
