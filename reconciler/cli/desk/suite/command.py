"""The command `retrofit test`."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from reconciler.cli.desk.cue import cue_option
from reconciler.cli.desk.files import NamedPath
from reconciler.cli.desk.operations import operation_of_flag, operation_option
from reconciler.cli.desk.suite import report
from reconciler.cli.desk.suite.check import End
from reconciler.cli.desk.suite.model import find
from reconciler.cli.desk.suite.parallel import run_file, run_files
from reconciler.cli.desk.suite.selector import EVERY_ROW, Selector
from reconciler.cli.desk.suite.watch import changed_after, places_of, state_of
from reconciler.cli.output.exits import FINDINGS, INTERRUPTED, NOT_RUN, OK
from reconciler.cli.output.screen import warn
from reconciler.clock import SystemClock
from reconciler.errors import InvalidSetting, RetrofitError

_FILE_NAMES = ("kyverno-test.yaml", "hook-test.yaml")

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
    metavar="NAME",
    type=NamedPath(),
    help="Name of the test files below DIR. Default: kyverno-test.yaml and hook-test.yaml.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(report.FORMATS),
    default="table",
    show_default=True,
    help="table: for people; json, junit: for programs.",
)
@click.option(
    "--test-case-selector",
    "-t",
    "selector",
    default="",
    metavar="SELECTOR",
    help="Run only these rows: policy=NAME,rule=NAME,resource=NAME, with wildcards.",
)
@click.option(
    "--require-tests",
    is_flag=True,
    help="Every DIR must have a test file; without this flag, one of them.",
)
@click.option("--fail-only", is_flag=True, help="Leave rows that passed out of the table.")
@click.option("--strict", is_flag=True, help="Rows that were excluded or not run fail, too.")
@cue_option
@operation_option
@click.option(
    "--run-hooks", "runs_hooks", is_flag=True, help="Run the executables that HookTests name."
)
@click.option("--verbose", "-v", is_flag=True, help="Show the operation of each tested rule.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that run test files. Default: one for each CPU where that is faster.",
)
@click.option("--watch", "-w", is_flag=True, help="Run again when a file changes, until Ctrl-C.")
def test(*, watch: bool, selector: str, **options: Any) -> None:
    """Run the tests of policies and hooks in folders.

    A kyverno-test.yaml names policies, objects, values, and the expected result of each rule for
    each object. A name that the test does not contain fails. A row is excluded if its rule does
    not apply to its object, and not run if its policy or rule cannot be evaluated; both are
    counted, and neither is a success. --operation applies to rows that name no operation. A
    HookTest names a hook, states of a cluster, and the expected result of each.

    \b
    Exit code:
      0    rows were tested, and all passed
      1    a row failed, a test is broken, or an entry of results tested nothing
      2    nothing was tested: no test file, or no row that can run; wrong usage
      130  --watch was ended
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    operation = operation_of_flag(options.pop("operation"))
    suite = _Suite(operation=operation, selector=Selector.parse(selector), **options)
    if watch:
        if suite.output != "table":
            raise click.UsageError("--watch writes a table; leave out --output")
        _watch(suite)
    sys.exit(suite.run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suite:
    """The options of the command line."""

    folders: tuple[str, ...]
    file_name: str | None
    output: str
    operation: str | None
    selector: Selector
    require_tests: bool
    fail_only: bool
    verbose: bool
    strict: bool
    jobs: int | None
    runs_hooks: bool
    cue: str

    @property
    def file_names(self) -> tuple[str, ...]:
        return _FILE_NAMES if self.file_name is None else (self.file_name,)

    def run(self) -> int:
        """Run all tests and print the results; return the exit code.

        Raises:
            InvalidSetting: No test file is found.
        """
        by_folder = {name: find([name], self.file_names) for name in self.folders}
        paths = list(dict.fromkeys(path for found in by_folder.values() for path in found))
        empty = [name for name, found in by_folder.items() if not found]
        if empty and (self.require_tests or not paths):
            raise InvalidSetting(f"{' '.join(empty)}: no {' or '.join(self.file_names)} found")
        work = partial(
            run_file,
            operation=self.operation,
            selector=self.selector,
            runs_hooks=self.runs_hooks,
            cue=self.cue,
        )
        found = list(run_files(paths, self.jobs, SystemClock(), work))
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
                report.show_table(
                    outcome, sys.stdout, fail_only=self.fail_only, verbose=self.verbose
                )
        for text in (text for run in outcome.runs for text in run.warnings):
            warn(text)
        return self._code(outcome)

    def _code(self, outcome: report.Outcome) -> int:
        counts = outcome.counts
        if outcome.broken or outcome.idle or counts[End.FAILED]:
            return FINDINGS
        if self.strict and (counts[End.EXCLUDED] or counts[End.NOT_RUN]):
            return FINDINGS
        if not outcome.tested:
            chosen = "" if outcome.counts else ": no row fits --test-case-selector"
            warn(f"nothing was tested{chosen if self.selector != EVERY_ROW else ''}")
            return NOT_RUN
        return OK


def _watch(suite: _Suite) -> NoReturn:
    try:
        while True:
            tests = find(suite.folders, suite.file_names)
            look = partial(state_of, {*map(Path, suite.folders), *places_of(tests)})
            before = look()
            try:
                suite.run()
            except RetrofitError as error:
                warn(f"Error: {error}")
            sys.stdout.flush()
            changed = changed_after(look, before, SystemClock())
            click.clear()
            click.echo(f"changed: {', '.join(map(str, changed))}\n")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
