"""ACLs of znodes: those of new znodes (``acls``), and their replacement on existing ones (``migration``)."""
