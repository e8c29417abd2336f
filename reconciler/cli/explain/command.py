"""The command line of `retrofit explain`."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from reconciler.api.meta import Object
from reconciler.cli.desk.files import objects, read_all
from reconciler.cli.desk.inputs import placed
from reconciler.cli.desk.policies import is_policy
from reconciler.cli.desk.stock import Scopes, Stock
from reconciler.cli.desk.values import read_user
from reconciler.cli.explain.outline import outline
from reconciler.cli.explain.page import Page
from reconciler.cli.explain.request import POLICY_UPDATE, Request
from reconciler.cli.explain.story import Story
from reconciler.dialects import compile_policy
from reconciler.engine.match import UserInfo
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, InvalidSetting

_BACKGROUND = "POLICY-UPDATE"
_EPILOG = """\b
Examples:
  retrofit explain policy.yaml
  retrofit explain policy.yaml --trigger configmap.yaml --target deployments.yaml
  retrofit explain policy.yaml --trigger cm.yaml --operation DELETE --userinfo user.yaml
  kubectl get deploy -A -o yaml | retrofit explain policy.yaml --trigger cm.yaml --target -

\b
Exit code: 0 when there was something to explain, whatever the answer; 1 when a policy is refused
or a file cannot be read; 2 when a flag is wrong.
"""


@click.command("explain", epilog=_EPILOG)
@click.argument("policy")
@click.option("--trigger", metavar="FILE", help="The object whose request may fire the rules.")
@click.option("--old", metavar="FILE", help="The same object before an UPDATE.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="FILE",
    help="Objects that may be targets, and what else the rules read: ConfigMaps, Namespaces.",
)
@click.option(
    "--operation",
    type=click.Choice(["CREATE", "UPDATE", "DELETE", "CONNECT", _BACKGROUND]),
    default="CREATE",
    show_default=True,
    help=f"Of the request; {_BACKGROUND}: nobody sent one, the policy changed.",
)
@click.option("--userinfo", metavar="FILE", help="Who sends the request: a UserInfo document.")
def explain(
    policy: str,
    *,
    trigger: str | None,
    old: str | None,
    targets: tuple[str, ...],
    operation: str,
    userinfo: str | None,
) -> None:
    """Say rule by rule why a policy does or does not change an object.

    POLICY is a file, a folder, or - for standard input. With --trigger every clause of match,
    every precondition and every variable is shown with its value, then every target with what the
    rule makes of it; without, what the rules ask for. Nothing is read from a cluster, nothing is
    written, and the content of Secrets is not shown.
    """
    named = [policy, *targets, *(name for name in (trigger, old, userinfo) if name)]
    if named.count("-") > 1:
        raise click.UsageError("standard input (-) can be read once only")
    if trigger is None and (old or targets or userinfo):
        raise click.UsageError("--old, --target and --userinfo need --trigger")
    policies = _policies(policy)
    if trigger is None:
        for obj, compiled in policies:
            outline(obj, compiled, Page())
        return
    scopes = Scopes()
    requests = [
        Request(
            operation=POLICY_UPDATE if operation == _BACKGROUND else operation,
            obj=obj,
            old=_one(old, scopes),
            user=None if userinfo is None else _user(userinfo),
        )
        for obj in placed([trigger], scopes)
    ]
    if not requests:
        raise InvalidSetting(f"{trigger}: no object is in there")
    others = placed(targets, scopes)
    for obj, compiled in policies:
        for request in requests:
            seen = others if request.operation == "DELETE" else [request.obj, *others]
            story = Story(
                policy=obj,
                compiled=compiled,
                stock=Stock(seen),
                request=request,
                page=Page(),
            )
            asyncio.run(story.tell())


def _policies(name: str) -> list[tuple[Object, CompiledPolicy]]:
    found: list[tuple[Object, CompiledPolicy]] = []
    scopes = Scopes()
    for document, obj in objects(read_all([name])):
        if not is_policy(obj):
            continue
        stored = scopes.placed(obj)
        try:
            found.append((stored, compile_policy(stored)))
        except InvalidPolicy as error:
            key = obj["metadata"].get("name", "")
            text = f"{document.place}: {obj['kind']} {key}: {error}"
            raise InvalidSetting(text) from error
    if not found:
        raise InvalidSetting(f"{name}: no ClusterPolicy and no Policy is in there")
    return found


def _one(name: str | None, scopes: Scopes) -> Object | None:
    if name is None:
        return None
    found = placed([name], scopes)
    if len(found) != 1:
        raise InvalidSetting(f"{name}: expected one object, found {len(found)}")
    return found[0]


def _user(name: str) -> tuple[UserInfo, Mapping[str, Any]]:
    found = list(read_all([name]))
    if len(found) != 1:
        raise InvalidSetting(f"{name}: expected one document, found {len(found)}")
    return read_user(found[0].value, name)
