"""Load of a storm besides its main topic.

* ``companion`` the interface that each kind of load has
* ``chain`` consume, transform and produce in transactions, beside a plain group; ``chain_clients`` its clients,
  ``seats`` restartable places for its processes
* ``loose_clients`` clients with weaker guarantees; ``readers`` short-lived readers
* ``side_topics`` topics that are created, grown and deleted; ``side_partition`` and ``side_clients`` their clients
"""
