"""What a broker keeps in ZooKeeper about itself, and what it learns there.  Decides no leadership.

* ``registration`` persistent paths, cluster id, ``/brokers/ids/N``
* ``dynamic_settings`` settings that change while the cluster runs
* ``producer_ids`` blocks of producer ids
"""
