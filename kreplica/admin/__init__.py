"""The REST admin API, on Klein.  It sees the broker only through the small protocols that it declares.

* ``groups`` the groups that a broker coordinates, and how far they are behind
* ``health`` whether the process lives and serves
* ``metrics`` what a broker counts, for Prometheus
* ``root`` where every path leads
* ``site`` the port that it listens on
"""
