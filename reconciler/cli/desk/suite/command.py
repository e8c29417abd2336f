"""The command `retrofit test`."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from reconciler.cli.desk.suite import report
from reconciler.cli.desk.suite.check import End
from reconciler.cli.desk.suite.model import find
from reconciler.cli.desk.suite.parallel import run_files
from reconciler.cli.desk.suite.watch import changed_after, places_of, state_of
from reconciler.clock import SystemClock
from reconciler.errors import InvalidSetting, RetrofitError

FAILED = 1
INTERRUPTED = 130

_EPILOG = """\b
Examples:
  retrofit test tests/
  retrofit test tests/ --fail-only --watch
  retrofit test tests/ -o junit > results.xml
"""


@click.command("test", epilog=_EPILOG)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--file-name",
    "-f",
    default="kyverno-test.yaml",
    show_default=True,
    help="Name of the test files below DIR.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(report.FORMATS),
    default="table",
    show_default=True,
    help="table for people; json and junit for programs.",
)
@click.option("--fail-only", is_flag=True, help="Leave out what passed, in a table.")
@click.option("--strict", is_flag=True, help="Rows that were excluded or not run fail as well.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that run test files. Default: one for each CPU where that is faster.",
)
@click.option("--watch", "-w", is_flag=True, help="Run again when a file changes, until Ctrl-C.")
def test(*, watch: bool, **options: Any) -> None:
    """Run test folders of policies as they are.

    A kyverno-test.yaml names policies, objects, values and the result that each rule must have at
    each object. A row of a rule that does not match its object is excluded, which passes; a row of
    a policy or rule that is not evaluated here is not run. Both are counted, see --strict.

    \b
    Exit code:
      0    every row is as expected
      1    a row failed, a test is broken, or there is none
      2    wrong usage
      130  --watch was ended
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    suite = _Suite(**options)
    if watch:
        if suite.output != "table":
            raise click.UsageError("--watch writes a table; leave out --output")
        _watch(suite)
    if not suite.run():
        sys.exit(FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suite:
    """What the command line asks for."""

    folders: tuple[str, ...]
    file_name: str
    output: str
    fail_only: bool
    strict: bool
    jobs: int | None

    def run(self) -> bool:
        """Run all tests and show what came out; return whether it is as expected.

        Raises:
            InvalidSetting: There is no test.
        """
        paths = find(self.folders, self.file_name)
        if not paths:
            raise InvalidSetting(f"{' '.join(self.folders)}: no {self.file_name} is in there")
        found = list(run_files(paths, self.jobs, SystemClock()))
        outcome = report.Outcome(
            runs=[run for item in found for run in item.runs],
            broken=[item.broken for item in found if item.broken],
        )
        match self.output:
            case "json":
                report.show_json(outcome, sys.stdout)
            case "junit":
                report.show_junit(outcome, sys.stdout)
            case _:
                report.show_table(outcome, sys.stdout, fail_only=self.fail_only)
        wrong = {End.FAILED, End.EXCLUDED, End.NOT_RUN} if self.strict else {End.FAILED}
        return not outcome.broken and not any(outcome.counts[end] for end in wrong)


def _watch(suite: _Suite) -> NoReturn:
    try:
        while True:
            tests = find(suite.folders, suite.file_name)
            look = partial(state_of, {*map(Path, suite.folders), *places_of(tests)})
            before = look()
            try:
                suite.run()
            except RetrofitError as error:
                click.echo(f"Error: {error}", err=True)
            sys.stdout.flush()
            changed = changed_after(look, before, SystemClock())
            click.clear()
            click.echo(f"changed: {', '.join(map(str, changed))}\n")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
