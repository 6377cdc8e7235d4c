"""ZooKeeper: its protocol, a client on Twisted, and (in ``embedded``) a coordinator that speaks the same protocol.

* ``errors`` one class per error code, for both sides
* ``jute`` the record encoding; ``framing`` a byte stream into frames
* ``records`` operation codes, stat, ACLs, watch events, the session handshake, frame headers
* ``requests`` every request as a value, ``responses`` every answer's body, both with their encoding both ways
* ``embedded`` the coordinator of a single machine and of simulations
"""
