"""The command line of `retrofit ui`."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import click
from aiohttp import web

from reconciler.cli.ui.server import application
from reconciler.cli.work.place import work_options, workplace
from reconciler.observe.listening import bind

_EPILOG = """\b
Examples:
  retrofit ui
  retrofit ui --port 9090 --context production
"""


@click.command("ui", epilog=_EPILOG)
@click.option("--port", default=8080, show_default=True, help="Port of the page; 0: any free one.")
@click.option(
    "--bind-address",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Anyone who can reach it sees what you may see.",
)
@click.option(
    "--hostname",
    "names",
    multiple=True,
    metavar="NAME",
    help="Another host name of the page, besides localhost and IP addresses; repeatable.",
)
@work_options
def ui(*, port: int, bind_address: str, names: tuple[str, ...], **address: Any) -> None:
    """Serve a live, read-only web page with policies and requests on this machine.

    The page shows what you may read, and no recorded fields of requests. It ends with Ctrl-C.

    \b
    Exit code:
      0  it was ended
      2  could not run: wrong usage, a taken port, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    with bind(bind_address, port, flag="--port") as listener, suppress(KeyboardInterrupt):
        asyncio.run(_serve(listener, names, address))


async def _serve(listener: socket.socket, names: tuple[str, ...], address: dict[str, str]) -> None:
    async with workplace(**address) as place:
        runner = web.AppRunner(application(place, names), access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            click.echo(f"http://{_shown(listener)}/  (Ctrl-C ends it)")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
