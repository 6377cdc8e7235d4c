"""``kreplica completion``: completion scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash: kreplica completion bash > ~/.local/share/bash-completion/completions/kreplica
    zsh:  kreplica completion zsh > ~/.zfunc/_kreplica    (a directory of $fpath)
    fish: kreplica completion fish > ~/.config/fish/completions/kreplica.fish
    """
    click.echo(completion_script(shell))


def completion_script(shell: str) -> str:
    """Return the completion script of a shell."""
    from kreplica.cli import main

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # source() would run bash to check its version, and the script is the same for all versions.
    script = completion_class(main, {}, "kreplica", "_KREPLICA_COMPLETE")
    return script.source_template % script.source_vars()
