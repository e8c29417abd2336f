"""The output of the demonstration: headings, sentences, and kubectl's own output."""

import json
import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.text import Text

from devcluster.cluster import Cluster
from devcluster.install import NAMESPACE
from reconciler.cli.manifests import find_manifests
from reconciler.errors import ClusterError

OBJECTS = Path(__file__).with_name("objects")
_INDENT = 2
_LONG = 100


class Stage:
    """Prints text, and runs kubectl with or without showing it."""

    def __init__(self, console: Console, cluster: Cluster) -> None:
        self.console = console
        self.cluster = cluster

    def heading(self, text: str) -> None:
        """Print the heading of a scene."""
        heading(self.console, text)

    def say(self, text: str) -> None:
        """Print one or more sentences."""
        self.console.print(f"\n{text}", markup=False, highlight=False)

    def fact(self, text: str) -> str:
        """Print and return the result of a scene."""
        self.console.print(Text(f"\n=> {text}", style="bold green"))
        return text

    def excerpt(self, name: str, start: str) -> None:
        """Print a file of objects from the first line that starts with a text."""
        text = (OBJECTS / name).read_text()
        part = textwrap.dedent(text[text.index(f"\n{start}") + 1 :]).rstrip()
        self.console.print(f"\n{name}, in short:", markup=False, highlight=False)
        if self.console.is_terminal:
            code = Syntax(part, "yaml", background_color="default", theme="ansi_dark")
            self.console.print(Padding(code, (0, 0, 0, _INDENT)))
        else:
            # Syntax pads lines with spaces, which plain output must not have.
            self._verbatim(part)
        self.console.print()

    def kubectl(self, *args: str) -> None:
        """Run kubectl, and show the command and its output."""
        self._command(*args)
        self._verbatim(self.cluster.kubectl(*args).rstrip())

    def sentence(self, *args: str) -> None:
        """Run kubectl, and show its long line of output wrapped at words."""
        self._command(*args)
        folded = textwrap.wrap(self.cluster.kubectl(*args), self.console.width - _INDENT)
        self._verbatim("\n".join(folded))

    def apply(self, name: str) -> None:
        """Apply one of the demonstration's files, and show the command and its output."""
        self._command("apply", "-f", name)
        self._verbatim(self.cluster.kubectl("apply", "-f", str(OBJECTS / name)).rstrip())

    def refused(self, *args: str) -> str:
        """Run a kubectl command that the API server refuses; show and return the reason."""
        self._command(*args)
        files = [str(OBJECTS / arg) if (OBJECTS / arg).is_file() else arg for arg in args]
        try:
            self.cluster.kubectl(*files)
        except ClusterError as error:
            said = str(error).replace(f"{OBJECTS}/", "")
            self._verbatim(said[max(0, said.find("Error from server")) :].rstrip())
            return said
        return ""

    def install(self, folder: str) -> None:
        """Apply a folder of the project's manifests, and show the command and its output."""
        self._command("apply", "-k", folder)
        self._verbatim(
            self.cluster.kubectl("apply", "-k", str(find_manifests() / folder)).rstrip()
        )

    def apply_policy(self, name: str) -> None:
        """Apply a policy, and wait until it is Ready."""
        self.apply(f"{name}.yaml")
        self.kubectl("wait", "--for=condition=Ready", "--timeout=30s", f"clusterpolicy/{name}")

    def items(self, *args: str) -> list[dict[str, Any]]:
        """Return the objects that ``kubectl get`` finds, without showing the command."""
        listed: list[dict[str, Any]] = json.loads(
            self.cluster.kubectl("get", *args, "-o", "json")
        )["items"]
        return listed

    def requests(self, policy: str) -> list[dict[str, Any]]:
        """Return the requests of a policy, without showing them."""
        return self.items("ur", "-n", NAMESPACE, "-l", f"kube-retrofit.dev/policy={policy}")

    def show_requests(self, policy: str) -> None:
        """Show the requests of a policy."""
        self.kubectl("get", "ur", "-n", NAMESPACE, "-l", f"kube-retrofit.dev/policy={policy}")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal during a wait."""
        with self.console.status(text):
            yield

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar; without a terminal, only its final state."""
        columns = (
            TextColumn(" " * _INDENT + "{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(text, total=total)
            yield lambda done: progress.update(task, completed=done)

    def _command(self, *args: str) -> None:
        line = f"$ kubectl {shlex.join(args)}"
        if len(line) > _LONG:
            line = line.replace(" -o ", " \\\n    -o ", 1)
        self._verbatim(line, style="bold cyan")

    def _verbatim(self, text: str, style: str = "") -> None:
        shown = Text(textwrap.indent(text, " " * _INDENT), style=style)
        # A table's rows must stay rows: wrapping is left to the terminal.
        self.console.print(shown, soft_wrap=True)


def heading(console: Console, text: str) -> None:
    """Print a heading on a console."""
    console.print()
    console.rule(Text(text, style="bold"), align="left", style="dim")
