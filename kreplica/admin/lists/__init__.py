"""Columns, order and filters of long lists.

* ``columns``: columns, and the query parameters that select columns, order, rows and page
* ``conditions``: parses and evaluates ``filter``
* ``topic_list``, ``group_list``, ``broker_list``, ``connection_list``: the lists
* ``pages``: filters, sorts and pages rows in slices
"""
