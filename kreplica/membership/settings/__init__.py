"""Dynamic settings of topics, brokers and clients in ZooKeeper.

* ``dynamic_settings``: reads the configurations of topics and brokers; ``settings_writer``: changes them
* ``client_metrics``: client metrics subscriptions
* ``dynamic_passwords``: encrypts the passwords in dynamic settings
* ``partition_settings``: settings of partitions, derived from those of their topic
"""
