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
    root = click.get_current_context().find_root()
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # source() would run bash to check its version, and the script is the same for all versions.
    script = completion_class(root.command, {}, "kreplica", "_KREPLICA_COMPLETE")
    click.echo(script.source_template % script.source_vars())
