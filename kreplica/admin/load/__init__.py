"""Load of topics, groups and brokers, and its history.

* ``tables``: compact tables that brokers exchange, one list per column
* ``shared_loads``: the merged tables of all brokers, cached briefly
* ``topic_loads``, ``group_loads``: the tables of topics and groups
* ``history``: ring buffers with chart data
* ``subject_histories``: the same for the most active topics and groups
* ``history_resource``: ``/v1/history`` and the histories of topics and groups
"""
