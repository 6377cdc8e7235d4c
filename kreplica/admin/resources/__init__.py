"""The resources of the admin API, one module each; ``kreplica.admin.http.api`` defines their interface.

Each resource declares the parts of the broker that it needs as small ``Protocol`` classes; ``kreplica.service``
provides them.
"""
