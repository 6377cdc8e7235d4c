"""The resources of the admin API, a module each: see ``kreplica.admin.http.api`` for what one is made of.

Each declares, as small ``Protocol``s, what it wants of the broker; ``kreplica.service`` fills those in.
"""
