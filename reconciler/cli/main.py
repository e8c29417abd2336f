"""The program `retrofit`, which `kubectl retrofit` runs too: its commands, errors and streams."""

import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem
from typing_extensions import override

from reconciler.cli import interrupts
from reconciler.cli.output.exits import INTERRUPTED, NOT_RUN, code_of
from reconciler.cli.output.screen import warn
from reconciler.cli.output.streams import open_outputs
from reconciler.cli.output.terminal import visible_streams
from reconciler.errors import InvalidSetting, RetrofitError

_DEVCLUSTER = "devcluster"
_NO_DEVCLUSTER = (
    "the local control plane is a package of its own, which is not installed: "
    "pip install 'kube-retrofit[dev]', or . ./devcluster in a checkout"
)
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Command(NamedTuple):
    """The module of a command, which holds it by its name, and the summary for the list."""

    module: str
    summary: str


# Loaded only when used: a command's imports must not slow down the others.
_COMMANDS: Mapping[str, _Command] = {
    "apply": _Command(".desk.apply", "Show what policies would change in the objects of files."),
    "preview": _Command(
        ".preview.command", "Show what policies would do to the objects of a live cluster."
    ),
    "test": _Command(".desk.suite.command", "Run test folders of policies: kyverno-test.yaml."),
    "migrate": _Command(
        ".migrate.command", "Move policies to the API group beside a Kyverno, or back."
    ),
    "run": _Command(".work.run", "Run a policy now on all existing objects."),
    "status": _Command(".work.status", "Show waiting, finished and failed requests, and why."),
    "top": _Command(".work.top", "Show how busy policies are: queues, rollouts, failures."),
    "ui": _Command(".ui.command", "Serve a live web page with policies and requests."),
    "clean": _Command(".work.clean", "Remove what an uninstalled kube-retrofit left on objects."),
    "retry": _Command(".work.retry", "Retry failed and waiting work now."),
    "dev": _Command(
        f"{_DEVCLUSTER}.commands", "Run a real local control plane with kube-retrofit installed."
    ),
    "lint": _Command(".lint.command", "Report errors and likely mistakes in policies."),
    "explain": _Command(
        ".explain.command", "Explain why a policy does or does not change an object."
    ),
    "hooks": _Command(
        ".desk.hooks.command", "List the hooks of a folder, and show what one would do."
    ),
    "jp": _Command(".jp", "Try JMESPath expressions as policies use them."),
    "version": _Command(".version", "Show the versions of retrofit and of the cluster."),
    "completion": _Command(".completion", "Print a completion script for bash, zsh or fish."),
}


class _Retrofit(click.Group):
    """A command group that loads commands lazily and prints each `RetrofitError` as one line."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = _COMMANDS.get(cmd_name)
        if known is None:
            return None
        try:
            module = importlib.import_module(known.module, "reconciler.cli")
        except ModuleNotFoundError as error:
            if error.name != _DEVCLUSTER:
                raise
            if ctx.resilient_parsing:
                return None
            raise InvalidSetting(_NO_DEVCLUSTER) from error
        finally:
            interrupts.raise_again()
        command = getattr(module, cmd_name)
        return command if isinstance(command, click.Command) else None

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise NoSuchCommand(name, possibilities=_COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own implementation would load every command to get its summary.
        return [
            *(
                CompletionItem(name, help=command.summary)
                for name, command in _COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in _COMMANDS.items()])

    @override
    def main(self, *args: Any, **kwargs: Any) -> Any:
        with visible_streams():
            try:
                return super().main(*args, **kwargs)
            # Not in invoke, because click writes help before that.
            except UnicodeError as error:
                warn(f"Error: {error}")
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                warn(f"Error: {place}{error.strerror or error}")
            sys.exit(NOT_RUN)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                # Here, where a full disk can still be reported.
                sys.stdout.flush()
        except RetrofitError as error:
            warn(f"Error: {error}")
            raise click.exceptions.Exit(code_of(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


_RETROFIT_EPILOG = """\b
Examples:
  eval "$(retrofit dev up)"      start a local cluster; this shell uses it
  eval "$(retrofit dev down)"    stop and remove it
"""


@click.group(cls=_Retrofit, context_settings=_CONTEXT, epilog=_RETROFIT_EPILOG)
@click.version_option(package_name="kube-retrofit", prog_name="retrofit")
def retrofit() -> None:
    """Change the objects that a cluster already has, by policy."""


def main() -> None:
    """Run the program; SIGTERM and SIGHUP raise SystemExit, so that cleanup code still runs."""
    # Log records of libraries are not for users; relevant failures are raised as a RetrofitError.
    logging.getLogger().addHandler(logging.NullHandler())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by the caller, as by >&-: the next file to be opened would take its place.
            stream = Path(os.devnull).open("r+", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
    open_outputs()
    retrofit()


if __name__ == "__main__":
    main()
