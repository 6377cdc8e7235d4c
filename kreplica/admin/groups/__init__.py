"""Groups of the whole cluster, by Kafka's protocol from the brokers that coordinate them.

* ``asking``: ``GroupCoordinators``: finds a group's coordinator, and asks again where it has moved
* ``listing``: all groups of all brokers
* ``describing``: one group, of either kind, with its members and its offsets
* ``resetting``: where a group is to go on, worked out and committed
"""
