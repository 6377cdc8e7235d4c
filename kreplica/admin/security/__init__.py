"""Authentication of callers of the admin API, and authorization of each route.

* ``guard`` protects one listener: authenticates callers and authorizes calls
* ``passwords`` verifies passwords with SCRAM credentials; ``failures`` limits failed authentications by address
* ``sessions`` sessions of the dashboard
* ``route_rules`` table of the permissions that each route requires; ``acl_documents`` ACLs as JSON
"""
