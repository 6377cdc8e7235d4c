"""The Kafka server: from a socket to the handler of a request and back to the socket.

In the order in which a request passes through them:

* ``transport``: listeners and sockets; ``listeners.Server`` is the entry point
* ``protocol``: frames, requests, responses and their order on a connection, and dispatching to handlers
* ``authorization``: permission checks before the handlers
* ``produce``, ``fetch``, ``metadata``: the requests on the hot path
* ``handlers``: all other requests, one module per API

A small frame is handled in the buffer that it was read into, without a copy.
"""
