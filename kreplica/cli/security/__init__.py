"""Users, delegation tokens, ACLs, quotas, development certificates and protected znodes."""
