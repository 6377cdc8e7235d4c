"""The REST admin API, based on Klein. It uses the broker only through the small protocols that it declares.

* ``http/``: requests and responses: ``api`` defines routes, ``site`` the port, ``root`` and ``routing`` the dispatch,
  ``access`` the access rules, ``problems`` errors, ``openapi`` the generated description
* ``resources/``: the resources, one module each
* ``cluster_state/``: what the resources read: published metadata, counts, znodes, the timeline
* ``groups/``, ``messages/``, ``plans/``, ``why/``: the logic behind the resources of these names
* ``peers/``: requests to other brokers' admin APIs and to partition leaders
* ``dashboard/``: the files of the web page
"""
