"""Plans as the admin API makes, shows and changes them; the resource is ``kreplica.admin.resources.plans``.

* ``reading`` plans as they stand in ZooKeeper
* ``writing`` the znode writes that make, patch, cancel and delete one
* ``circumstances`` the cluster as a plan is made from it
* ``replica_sizes`` how large replicas are, asked of the brokers that hold them
* ``shown`` plans as JSON, and the schemas of that
"""
