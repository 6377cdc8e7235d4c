"""The REST admin API, on Klein.  It sees the broker only through the small protocols that it declares.

A resource is made of routes; start with ``api``.

* ``api`` what a resource is made of: routes, whose handlers get a ``Call`` and give an ``Answer``
* ``problems`` what goes wrong, as it is answered; ``failures`` everybody's errors as problems
* ``schemas`` what schemas of bodies and answers are put together from
* ``znode_writes`` what a write does to ZooKeeper, shown as it is done
* ``resources/`` the resources, a module each; ``dashboard/`` the files of the page at ``/``
* ``groups/`` groups, by their coordinators; ``messages/`` records, by the leaders of partitions; ``leaders`` these
* ``openapi`` the document that describes them
* ``health`` whether the process lives and serves; ``metrics`` what a broker counts, for Prometheus
* ``plans/`` how plans are read, made and shown; ``why/`` how things are explained
* ``chronicles`` what happened, as all brokers tell it; ``timeline_feed`` what happens
* ``published`` what a broker knows of the cluster; ``counts`` the same in figures; ``topic_znodes`` what only ZooKeeper
  knows
* ``registrations`` where the other brokers' admin listeners are; ``forwarding`` asking them, ``trust`` whose
  certificates are believed

How routes are served, from the outside in:

* ``site`` the port that it listens on; ``bounded_requests`` bodies of a bounded size
* ``root`` every request comes here: ``access`` says who may ask
* ``routing`` from a path to its route's handler, and to the answer
* ``calls`` from a request to a checked ``Call``
* ``json_pieces`` JSON of long answers; ``event_streams`` answers that go on
"""
