"""Reads, creates and changes plans; ``kreplica.admin.resources.plans`` is the resource."""
