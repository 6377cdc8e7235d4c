"""Delegation tokens (KIP-48, KIP-373): their permissions, lifetimes and secrets.

* ``token``: a token, and the rules of its lifetime
* ``token_cache``: the current tokens, with their secrets and SCRAM credentials
* ``znodes``: names and data of tokens in ZooKeeper, as Kafka 3.9 writes them
"""
