"""Delegation tokens in ZooKeeper.

* ``token_store``: reads tokens, watches for changes, and writes changes
* ``token_sweep``: removes expired tokens while this broker is the controller
"""
