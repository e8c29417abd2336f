"""The command `retrofit lint`."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import click

from reconciler.api.globalcontext import KIND as ENTRY
from reconciler.api.meta import Object, policy_ref
from reconciler.cli.desk.acceptance import refused_metadata
from reconciler.cli.desk.policies import rule_names
from reconciler.cli.lint.report import Row, as_github, as_json, as_sarif, as_text, summary
from reconciler.cli.lint.schema import crd_findings
from reconciler.cli.lint.sources import HOOKS, POLICIES, Broken, Source, read_sources
from reconciler.cli.output.exits import FINDINGS, NOT_RUN
from reconciler.cli.output.screen import screen_of, warn
from reconciler.cli.output.words import number
from reconciler.dialects.registry import EXCEPTION
from reconciler.errors import InvalidSetting
from reconciler.isolation.jq import BriefJq
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.lint import (
    Finding,
    Level,
    invalid,
    lint_entry,
    lint_exception,
    lint_hook,
    lint_policy,
)

_FORMATS = {"json": as_json, "sarif": as_sarif, "github": as_github}
_EPILOG = """\b
Examples:
  retrofit lint policy.yaml               one file
  retrofit lint --strict policies/        a folder, in CI
  retrofit lint -o github policies/       as annotations of a pull request
  retrofit lint -o sarif . > lint.sarif   for code scanning
  kubectl get cpol -o yaml | retrofit lint -

\b
Exit code:
  0  no errors; with --strict: no warnings either
  1  errors: a policy would be refused, or cannot do what it says;
     with --strict: errors or warnings
  2  a file is missing, no policy was found, or a flag is wrong
"""


@click.command("lint", epilog=_EPILOG)
@click.argument(
    "policies",
    metavar="POLICY...",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True),
)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--no-notes", is_flag=True, help="Leave out notes.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", *_FORMATS]),
    default="text",
    show_default=True,
    help="Text for people, one JSON list, a SARIF log, or workflow commands of GitHub.",
)
def lint(policies: tuple[str, ...], *, strict: bool, no_notes: bool, output: str) -> None:
    """Report errors and likely mistakes in policies.

    POLICY is a file, a folder, a quoted wildcard, or - for standard input. PolicyExceptions,
    GlobalContextEntries and Hooks are checked as well; other objects are ignored. Reports
    everything that is refused when a policy is applied, and rules that do something else than
    they seem to: a target that selects the whole cluster, an append that never ends, a label
    that is read without a default. Reads only files, no cluster.
    """
    read = list(read_sources(policies))
    sources = [item for item in read if isinstance(item, Source)]
    missing = [item for item in read if isinstance(item, InvalidSetting)]
    rules = {policy_ref(item.obj).key: frozenset(rule_names(item.obj)) for item in sources}
    rows = [
        row for row in _rows(read, rules) if not (no_notes and row.finding.level is Level.NOTE)
    ]
    if not sources and not rows and not missing:
        known = "no policy, PolicyException, GlobalContextEntry or Hook"
        missing = [InvalidSetting(f"{' '.join(policies)}: {known} found")]
    if sources or rows:
        _print(rows, output, _count(item.obj["kind"] for item in sources))
    for error in missing:
        warn(f"Error: {error}")
    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    if missing:
        sys.exit(NOT_RUN)
    if any(row.finding.level in bad for row in rows):
        sys.exit(FINDINGS)


@cache
def namespaced(api_version: str, kind: str) -> bool | None:
    """Return whether a built-in kind is namespaced; None for all other kinds."""
    scopes = {item.namespaced for item in asyncio.run(MemoryKinds().find(api_version, kind))}
    return scopes.pop() if len(scopes) == 1 else None


def _rows(
    read: Iterable[Source | Broken | InvalidSetting], rules: Mapping[str, frozenset[str]]
) -> Iterator[Row]:
    for item in read:
        if isinstance(item, Broken):
            finding = Finding(level=Level.ERROR, code="unreadable", location="", text=item.reason)
            yield Row(file=item.file, position=item.position, policy="", finding=finding)
        elif isinstance(item, Source):
            rows = [
                Row(
                    file=item.name,
                    position=item.position(finding.location),
                    policy=policy_ref(item.obj).key,
                    finding=finding,
                )
                for finding in _lint(item.obj, rules)
            ]
            yield from sorted(rows, key=lambda row: (row.position.line, row.position.column))


def _lint(obj: Object, rules: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    match obj["kind"]:
        case kind if kind == ENTRY:
            found = lint_entry(obj)
        case kind if kind == EXCEPTION:
            found = lint_exception(obj, rules)
        case kind if kind in HOOKS:
            found = asyncio.run(_lint_hook(obj))
        case _:
            found = lint_policy(obj, scope=namespaced)
    yield from map(invalid, refused_metadata(obj))
    yield from found
    # An error at the same place or below it names its cure; a CRD finding would repeat it.
    known = [f"{finding.location}." for finding in found if finding.level is Level.ERROR]
    if "kind." not in known:
        for item in crd_findings(obj):
            if not any(place.startswith(f"{item.location}.") for place in known):
                yield item


async def _lint_hook(obj: Object) -> tuple[Finding, ...]:
    async with BriefJq().session() as jq:
        return await lint_hook(obj, jq)


def _count(kinds: Iterable[str]) -> str:
    found = Counter("Policy" if kind in POLICIES else kind for kind in kinds)
    texts = [
        number(found["Policy"], "policy", "policies") if found["Policy"] else "",
        number(hooks, "hook") if (hooks := found["Hook"] + found["ClusterHook"]) else "",
        number(found[EXCEPTION], "exception") if found[EXCEPTION] else "",
        number(found[ENTRY], "entry", "entries") if found[ENTRY] else "",
    ]
    return " and ".join(filter(None, texts)) or "nothing readable"


def _print(rows: Sequence[Row], output: str, looked_at: str) -> None:
    screen = screen_of(sys.stdout)
    text = _FORMATS[output](rows) if output in _FORMATS else as_text(rows, screen)
    if text:
        click.echo(text)
    warn(summary(rows, looked_at))
