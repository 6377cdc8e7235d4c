"""Clients that authenticate, changes of their permissions, and a check that they never exceed their permissions.

* ``secured_clients``: all clients of one run: start here
* ``access_check``: the rules; ``tracked``: access control data in ZooKeeper and on each broker
* ``rights``: the permissions that a request uses; ``observed_connections``: the requests and responses of clients
* ``users``: users and their passwords; ``administrator``: changes users, ACLs and quotas
* ``group_reader``: reads as a group member; ``lazy_client``: never authenticates again
"""
