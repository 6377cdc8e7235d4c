"""A black-box check of any Kafka-compatible cluster: load on a topic of its own, and what clients were told of it.

* ``options`` what is to be done
* ``cluster_access`` the way in: brokers, the topic made, led and removed; what makes a run impossible
* ``verification`` the run itself: start here
* ``clients`` the producers and readers of a run
* ``observations`` what they were told
* ``verdict`` what came of it
"""
