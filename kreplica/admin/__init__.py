"""The REST admin API, on Klein.  It sees the broker only through the small protocols that it declares.

* ``health`` whether the process lives and serves
* ``site`` the port that it listens on
"""
