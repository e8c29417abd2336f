"""``retrofit-controller``: the leader-elected controller."""

import asyncio
import os
import sys
from typing import Any

import click

from reconciler import controller
from reconciler.config import ControllerSettings, build, options
from reconciler.errors import RetrofitError
from reconciler.observe.loops import new_event_loop


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kube-retrofit")
@options(ControllerSettings)
def main(**values: Any) -> None:
    """Turn UpdateRequests into patches on their targets, as the leader among its replicas.

    Every option can be given as environment variable too; durations are written as 30s or 10m.
    """
    try:
        settings = build(ControllerSettings, values, os.environ)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            code = runner.run(controller.run(settings))
    except RetrofitError as error:
        click.echo(f"Error: {error}", err=True)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
