"""``python -m kreplica.cli`` is the ``kreplica`` command."""

from kreplica.cli import main

if __name__ == "__main__":
    main(prog_name="kreplica")
