"""Runs the mutation score as ``python -m tests.support.mutations``."""

from tests.support.mutations.command import command

if __name__ == "__main__":
    command()
