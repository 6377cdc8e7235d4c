"""The REST admin API, based on Klein. It accesses the broker only through the small protocols that it declares.

* ``http/``: the server, routing, access rules, errors and the generated OpenAPI description
* ``resources/``: the resources, one module each
* ``cluster_state/``: data that the resources read: published metadata, counts, znodes, the timeline
* ``groups/``, ``messages/``, ``plans/``, ``why/``: the logic behind the resources of these names
* ``peers/``: requests to other brokers' admin APIs and to partition leaders
* ``dashboard/``: the files of the web page
"""
