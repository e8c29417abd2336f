"""The commands of `retrofit jp`: JMESPath with the functions and rules of policies, offline."""

import json
import secrets
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from reconciler.cli.desk.files import STDIN, read_all
from reconciler.cli.output.encoding import json_of
from reconciler.cli.output.terminal import bare_stream
from reconciler.clock import SystemClock
from reconciler.engine.environment import EvaluationEnvironment
from reconciler.errors import InvalidSetting
from reconciler.languages.jmespath import DEFAULT_LIMITS, compile_expression
from reconciler.languages.jmespath.functions.registry import REGISTRY
from reconciler.languages.jmespath.functions.signature import Function
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.syntax import Source, Tree, parse

_WIDTH = 44
"""Columns for signatures; the few longer ones push their short note to the right."""

_EPILOG = """\b
Examples:
  kubectl get deploy web -o json | retrofit jp query 'spec.replicas'
  retrofit jp query -i web.yaml 'metadata.labels' 'spec.replicas'
  retrofit jp parse 'items[?metadata.name == `web`]'
  retrofit jp function to_string

\b
Exit code:
  0  the expressions were evaluated, even if the result is null
  1  an expression is invalid, or fails on this input
  2  could not run: wrong usage, the input cannot be read
"""


@click.group("jp", epilog=_EPILOG)
def jp() -> None:
    """Try JMESPath expressions, with the functions and rules for null of policies."""


_QUERY_EPILOG = """\b
Examples:
  kubectl get deploy web -o json | retrofit jp query 'spec.replicas'
  retrofit jp query -u -i web.yaml 'metadata.name'
"""


@jp.command(epilog=_QUERY_EPILOG)
@click.argument("expressions", metavar="EXPRESSION...", nargs=-1, required=True)
@click.option(
    "-i",
    "--input",
    "source",
    default=STDIN,
    metavar="FILE",
    help="JSON or YAML. Default: standard input.",
)
@click.option("-c", "--compact", is_flag=True, help="Print each result on one line.")
@click.option("-u", "--unquoted", is_flag=True, help="Print strings without quotes.")
def query(expressions: tuple[str, ...], source: str, *, compact: bool, unquoted: bool) -> None:
    """Print the results of expressions as JSON.

    Several results have their expressions as headings.
    """
    data = _read(source)
    for text in expressions:
        expression = compile_expression(text)
        known = EvaluationEnvironment(now=SystemClock().now(), randbelow=secrets.randbelow)
        value = expression.resolve(Run(data, DEFAULT_LIMITS, environment=known))
        if len(expressions) > 1:
            click.echo(f"# {text}")
        if unquoted and isinstance(value, str):
            # A program takes the text as it is, control characters included.
            click.echo(value, file=None if sys.stdout.isatty() else bare_stream(sys.stdout))
        else:
            click.echo(json_of(value, compact=compact))


_PARSE_EPILOG = """\b
Example:
  retrofit jp parse 'a.b || length(c)'
"""


@jp.command("parse", epilog=_PARSE_EPILOG)
@click.argument("expressions", metavar="EXPRESSION...", nargs=-1, required=True)
def parse_(expressions: tuple[str, ...]) -> None:
    """Print the syntax tree of expressions, one part per line."""
    for text in expressions:
        compile_expression(text)  # Also rejects unknown functions.
        if len(expressions) > 1:
            click.echo(f"# {text}")
        for line in _tree_lines(parse(Source(text=text, shown=text), DEFAULT_LIMITS), 0):
            click.echo(line)


_FUNCTION_EPILOG = """\b
Examples:
  retrofit jp function
  retrofit jp function join to_string
"""


@jp.command(epilog=_FUNCTION_EPILOG)
@click.argument("names", metavar="[NAME]...", nargs=-1)
def function(names: tuple[str, ...]) -> None:
    """Print the functions of expressions, with their types."""
    for name in names:
        if name not in REGISTRY:
            raise InvalidSetting(f"there is no function {name}; see `retrofit jp function`")
    shown = names or sorted(REGISTRY)
    signatures = {name: _signature(name, REGISTRY[name]) for name in shown}
    width = min(max(map(len, signatures.values())), _WIDTH)
    for name, signature in signatures.items():
        known = REGISTRY[name]
        notes = ["JMESPath" if known.standard else "policies"]
        if not known.pure:
            notes.append("another result each time")
        click.echo(f"{signature:<{width}}  {', '.join(notes)}")


def _read(source: str) -> Any:
    documents = list(islice(read_all([source]), 2))
    if len(documents) > 1:
        raise InvalidSetting(f"{documents[1].place}: a second document; only one can be queried")
    return documents[0].value if documents else None


def _tree_lines(node: Tree, depth: int) -> Iterable[str]:
    value = f" {json.dumps(node['value'], ensure_ascii=False)}" if "value" in node else ""
    yield f"{'  ' * depth}{node['type']}{value}"
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _tree_lines(child, depth + 1)
        else:
            yield f"{'  ' * (depth + 1)}{json.dumps(child)}"


def _signature(name: str, known: Function) -> str:
    takes = [" | ".join(types) for types in known.takes]
    if known.variadic:
        takes[-1] += "..."
    return f"{name}({', '.join(takes)})"
