"""ACLs of znodes: ``acls`` for new znodes, ``migration`` to replace those of existing znodes."""
