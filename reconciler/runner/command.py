"""The command line of `retrofit-hooks`."""

import asyncio
import os
import sys
from typing import Any

import click

from reconciler.errors import RetrofitError
from reconciler.observe.loops import new_event_loop
from reconciler.runner.app import run
from reconciler.runner.settings import build, runner_options, without_effect


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kube-retrofit")
def main() -> None:
    """Run hooks that are executables, with the rights of this Pod."""


@main.command()
@runner_options
def start(**values: Any) -> None:
    """Run the hooks of a folder.

    One replica leads; all of them answer the API server. Flags and variables are those of
    shell-operator; durations are written as 30s or 10m.
    """
    try:
        settings = build(values)
        notes = tuple(without_effect(values, os.environ))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run(settings, notes))
    except RetrofitError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
