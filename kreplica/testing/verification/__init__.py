"""Black-box check of any Kafka-compatible cluster: clients write and read a topic, and their history is checked.

* ``verification``: one run: start here
* ``options``: options of a run
* ``cluster_access``: finds the brokers, creates and deletes the topic, explains why a run is impossible
* ``clients``: producers and readers of a run
* ``observations``: history and measurements of the clients
* ``verdict``: the result
"""
