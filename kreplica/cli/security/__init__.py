"""Users, ACLs, development certificates and protected znodes: ``kreplica user|acl|tls|znodes``."""
