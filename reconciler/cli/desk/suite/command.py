"""The command `retrofit test`."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.cli.desk.suite import report
from reconciler.cli.desk.suite.check import End, TestRun, run_test
from reconciler.cli.desk.suite.model import find, read_tests
from reconciler.errors import InvalidSetting, RetrofitError

FAILED = 1

_EPILOG = """\b
Examples:
  retrofit test tests/
  retrofit test tests/ --fail-only
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
def test(
    *, folders: tuple[str, ...], file_name: str, output: str, fail_only: bool, strict: bool
) -> None:
    """Run test folders of policies as they are.

    A kyverno-test.yaml names policies, objects, values and the result that each rule must have at
    each object. A row of a rule that does not match its object is excluded, which passes; a row of
    a policy or rule that is not evaluated here is not run. Both are counted, see --strict.

    \b
    Exit code:
      0  every row is as expected
      1  a row failed, a test is broken, or there is none
      2  wrong usage
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    paths = find(folders, file_name)
    if not paths:
        raise InvalidSetting(f"{' '.join(folders)}: no {file_name} is in there")
    outcome = asyncio.run(_run(paths))
    match output:
        case "json":
            report.show_json(outcome, sys.stdout)
        case "junit":
            report.show_junit(outcome, sys.stdout)
        case _:
            report.show_table(outcome, sys.stdout, fail_only=fail_only)
    wrong = {End.FAILED, End.EXCLUDED, End.NOT_RUN} if strict else {End.FAILED}
    if outcome.broken or any(outcome.counts[end] for end in wrong):
        sys.exit(FAILED)


async def _run(paths: Sequence[Path]) -> report.Outcome:
    runs: list[TestRun] = []
    broken: list[str] = []
    for path in paths:
        try:
            runs += [await run_test(item) for item in read_tests(path)]
        except RetrofitError as error:
            place = "" if str(error).startswith(str(path)) else f"{path}: "
            broken.append(f"{place}{error}")
    return report.Outcome(runs=runs, broken=broken)
