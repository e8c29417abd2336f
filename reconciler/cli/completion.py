"""The command `retrofit completion`."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_EPILOG = """\b
For this shell only:
  eval "$(retrofit completion bash)"     (zsh: the same with zsh)
  retrofit completion fish | source

\b
For every new shell:
  retrofit completion bash > ~/.local/share/bash-completion/completions/retrofit
  echo 'eval "$(retrofit completion zsh)"' >> ~/.zshrc
  retrofit completion fish > ~/.config/fish/completions/retrofit.fish

\b
If zsh does not find the command compdef, it needs this first:
  autoload -Uz compinit && compinit
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and values."""
    source = _SHELLS[shell](context.find_root().command, {}, "retrofit", "_RETROFIT_COMPLETE")
    click.echo(source.source(), nl=False)
