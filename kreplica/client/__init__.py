"""Speaking to brokers on Twisted: what fetchers, the controller and client programs stand on.

* ``connection``: one pipelined connection to one broker
* ``negotiation``: which version of an API to speak with it
* ``errors``: what can go wrong on the way
"""
