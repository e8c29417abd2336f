"""The command line of `retrofit run`: creates a sweep for each rule, and can wait for it."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import click

from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.api.updaterequest import Source, State, UpdateRequest, render_time
from reconciler.cli.desk.progress import Bar
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.screen import warn
from reconciler.cli.output.words import number
from reconciler.cli.work.place import Workplace, policy_key, stored_policy, work_options, workplace
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.errors import InvalidPolicy, InvalidSetting, NotFound
from reconciler.requests.background_drafts import sweep_draft
from reconciler.requests.lifecycle import FINAL
from reconciler.requests.naming import manual_name
from reconciler.services.rollout.manual_run import why_not

_LOOK = 0.5
_PATIENCE = 15.0
"""Seconds without progress after which a warning says that no controller has begun."""

_EPILOG = """\b
Examples:
  kubectl retrofit run reload
  kubectl retrofit run shop/restart stamp --wait
"""


@click.command("run", epilog=_EPILOG)
@click.argument("policy")
@click.argument("rule", required=False)
@click.option("--wait", is_flag=True, help="Show the progress until the run has ended.")
@work_options
def run(policy: str, rule: str | None, *, wait: bool, **address: Any) -> None:
    """Run a policy, or one RULE of it, now on all existing objects.

    POLICY is the NAME of a ClusterPolicy, or NAMESPACE/NAME of a Policy; policies of other
    languages have their kind, as modrule/NAMESPACE/NAME. Each rule gets one UpdateRequest,
    with or without mutateExistingOnPolicyUpdate. Interrupting this command does not stop the
    work.

    \b
    Exit code:
      0  the run was requested; with --wait, it succeeded
      1  a rule cannot run without a request, or the policy is refused; with
         --wait, it failed, or some objects could not be finished
      2  could not run: wrong usage, no such policy or rule, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    if rule == "":
        raise InvalidSetting("the name of the rule is empty; leave it out for all rules")
    if not asyncio.run(_run(policy_key(policy), rule or "", wait=wait, address=address)):
        sys.exit(FINDINGS)


async def _run(key: str, rule: str, *, wait: bool, address: dict[str, str]) -> bool:
    async with workplace(**address) as place:
        compiled = await _compiled(place, key)
        programs = _chosen(compiled, rule)
        mark = render_time(place.live.clock.now())
        names, good = [], True
        for program in programs:
            if reason := why_not(program):
                warn(f"rule {program.rule} cannot run now: {reason}")
                good = False
                continue
            name = manual_name(compiled.uid, mark, program.rule)
            draft = sweep_draft(compiled, program, Source.MANUAL)
            await place.requests.create(name, draft.labels, draft.spec)
            click.echo(f"rule {program.rule}: {name}")
            names.append(name)
        if names and wait:
            return await _follow(place, names) and good
        return good


async def _compiled(place: Workplace, key: str) -> CompiledPolicy:
    try:
        return compile_policy(await stored_policy(place, key))
    except InvalidPolicy as error:
        raise InvalidPolicy("", f"policy {key} does not run: {error}") from error


def _chosen(compiled: CompiledPolicy, rule: str) -> list[Program]:
    programs = [item for item in compiled.in_background if rule in ("", item.rule)]
    if programs:
        return programs
    if not rule:
        raise InvalidSetting(
            f"policy {compiled.key} has no rule that changes existing objects; a rule without"
            f' mutate.targets does where the policy has {ANNOTATION_EXISTING}: "true"'
        )
    known = ", ".join(item.rule for item in compiled.in_background) or "none"
    raise InvalidSetting(f"policy {compiled.key} has no rule {rule}; its rules: {known}")


async def _follow(place: Workplace, names: Iterable[str]) -> bool:
    good = True
    with Bar() as bar:
        for name in names:
            bar.begin(name)
            request = await _ended(place, name, bar)
            click.echo(_said(request))
            sweep = request.status.sweep
            ended_well = request.status.state is State.COMPLETED
            good = good and ended_well and not (sweep and sweep.failed)
    return good


async def _ended(place: Workplace, name: str, bar: Bar) -> UpdateRequest:
    clock = place.live.clock
    begun, warned, shown = clock.monotonic(), "", 0
    while True:
        try:
            request = await place.requests.get(name)
        except NotFound as error:
            msg = f"{name} was removed: either it ended and is not kept, or a user deleted it"
            raise InvalidSetting(msg) from error
        status = request.status
        if status.state in FINAL:
            return request
        if status.sweep is not None:
            bar.advance(status.sweep.done - shown, max(0, status.sweep.total - status.sweep.done))
            shown = status.sweep.done
        word = status.message
        if not word and status.sweep is None and clock.monotonic() - begun > _PATIENCE:
            word = "no controller has started it: is retrofit-controller running?"
        if word and word != warned:
            warn(f"{name} waits: {word}")
        warned = word or warned
        await asyncio.sleep(_LOOK)


def _said(request: UpdateRequest) -> str:
    status, sweep = request.status, request.status.sweep
    triggers = "" if sweep is None else number(sweep.done, "trigger")
    done = f", {triggers}, {status.counts.patched:,} patched" if triggers else ""
    more = f": {status.message}" if status.message else ""
    return f"rule {request.spec.rule}: {status.state}{done}{more}"
