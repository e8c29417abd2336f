"""The command `retrofit lint`."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import click
import orjson
from rich.console import Console
from rich.text import Text

from reconciler.api.globalcontext import KIND as ENTRY
from reconciler.api.meta import Object
from reconciler.cli.desk.documents import Document
from reconciler.cli.desk.files import objects, read_all
from reconciler.dialects.kyverno import EXCEPTION
from reconciler.dialects.kyverno import KINDS as POLICIES
from reconciler.errors import InvalidSetting
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.lint import Finding, Level, lint_entry, lint_exception, lint_policy
from reconciler.services.policies import policy_key

_KINDS = POLICIES | {ENTRY, EXCEPTION}
_STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_EPILOG = """\b
Examples:
  retrofit lint policy.yaml               one file
  retrofit lint --strict policies/        a folder, in CI
  kubectl get cpol -o yaml | retrofit lint -
  retrofit lint -o json policies/ | jq '.[].code'

\b
Exit code:
  0  nothing is wrong; notes, and warnings without --strict, do not count
  1  a policy would be refused, or cannot do what it says; with --strict: or a warning
  2  a file cannot be read, no policy was found, or a flag is wrong
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    source: str
    policy: str
    finding: Finding


@click.command("lint", epilog=_EPILOG)
@click.argument("policies", metavar="POLICY...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--no-notes", is_flag=True, help="Leave out what is only good to know.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A line per finding, or one JSON list.",
)
def lint(policies: tuple[str, ...], *, strict: bool, no_notes: bool, output: str) -> None:
    """Say what is wrong with policies, and what would surprise their authors.

    POLICY is a file, a folder, a glob, or - for standard input. GlobalContextEntries in it are
    checked as well; other objects are left out.
    Finds everything that is refused when a policy is applied, and what works otherwise than it
    looks: a target that means the whole cluster, an append that never ends, a filter that a policy
    update never passes. Reads files only, no cluster.
    """
    try:
        documents = filter(_may_hold_policies, read_all(policies))
        read = [(item.source, obj) for item, obj in objects(documents) if obj["kind"] in _KINDS]
    except InvalidSetting as error:
        raise _Unusable(str(error)) from error
    if not read:
        known = "no ClusterPolicy, Policy, PolicyException or GlobalContextEntry"
        raise _Unusable(f"{' '.join(policies)}: {known} is in there")
    rules = {policy_key(obj): _rule_names(obj) for _, obj in read if obj["kind"] in POLICIES}
    found = [item for source, obj in read for item in _lint(source, obj, rules)]
    if no_notes:
        found = [item for item in found if item.finding.level is not Level.NOTE]
    if output == "json":
        click.echo(_json(found))
    else:
        _print(found, _count(obj["kind"] for _, obj in read))
    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    if any(item.finding.level in bad for item in found):
        sys.exit(1)


class _Unusable(click.ClickException):
    exit_code = 2


def _may_hold_policies(document: Document) -> bool:
    # Folders of policies hold other documents as well, which may be no objects at all.
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    return isinstance(kind, str) and (kind in _KINDS or kind.endswith("List"))


@cache
def namespaced(api_version: str, kind: str) -> bool | None:
    """Tell whether a kind that every cluster serves is namespaced; None for all others."""
    scopes = {item.namespaced for item in asyncio.run(MemoryKinds().find(api_version, kind))}
    return scopes.pop() if len(scopes) == 1 else None


def _rule_names(policy: Object) -> frozenset[str]:
    spec = policy.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    listed = rules if isinstance(rules, list) else ()
    return frozenset(str(item.get("name")) for item in listed if isinstance(item, dict))


def _lint(source: str, obj: Object, rules: Mapping[str, frozenset[str]]) -> Iterable[_Found]:
    match obj["kind"]:
        case kind if kind == ENTRY:
            findings = lint_entry(obj)
        case kind if kind == EXCEPTION:
            findings = lint_exception(obj, rules)
        case _:
            findings = lint_policy(obj, scope=namespaced)
    for finding in findings:
        yield _Found(source=source, policy=policy_key(obj), finding=finding)


def _count(kinds: Iterable[str]) -> str:
    found = Counter("Policy" if kind in POLICIES else kind for kind in kinds)
    texts = [
        _number(found["Policy"], "policy", "policies"),
        _number(found[EXCEPTION], "exception", "exceptions"),
        _number(found[ENTRY], "entry", "entries"),
    ]
    return " and ".join(filter(None, texts))


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else ""


def _json(found: Iterable[_Found]) -> bytes:
    rows = [
        {
            "file": item.source,
            "policy": item.policy,
            "place": item.finding.location,
            "level": item.finding.level,
            "code": item.finding.code,
            "text": item.finding.text,
            "cure": item.finding.cure,
        }
        for item in found
    ]
    return orjson.dumps(rows, option=orjson.OPT_INDENT_2)


def _print(found: Iterable[_Found], looked_at: str) -> None:
    console = Console(highlight=False, soft_wrap=True)
    counts = dict.fromkeys(Level, 0)
    for item in found:
        finding = item.finding
        counts[finding.level] += 1
        line = Text(f"{item.source}:{item.policy}:{finding.location}  ")
        line.append(finding.level.upper(), _STYLES[finding.level])
        line.append(f"  {finding.code}", "bold")
        line.append(f"  {finding.text}")
        if finding.cure:
            line.append(f" -> {finding.cure}", "dim")
        console.print(line)
    words = [f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items()]
    said = f"{looked_at}: {', '.join(words)}"
    Console(stderr=True, highlight=False).print(said)
