"""The command line of `retrofit retry`: retries failed requests, and waiting ones at once."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import click

from reconciler.api.meta import ANNOTATION_RETRY, ANNOTATION_RETRY_FAILED, PolicyRef
from reconciler.api.updaterequest import State, UpdateRequest, render_time
from reconciler.cli.output.exits import FINDINGS
from reconciler.cli.output.screen import warn
from reconciler.cli.output.words import number
from reconciler.cli.work.place import (
    Workplace,
    policy_key,
    request_name,
    stored_policy,
    work_options,
    workplace,
)
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, InvalidSetting, NotFound
from reconciler.requests.naming import retry_name

_EPILOG = """\b
Examples:
  kubectl retrofit retry reload
  kubectl retrofit retry --failed
  kubectl retrofit retry ur-5c7f0a1e9b2d4c6f8a0b1c2d3e4f5a6b
"""


@click.command("retry", epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[POLICY|REQUEST]...")
@click.option(
    "--failed", is_flag=True, help="Only failed requests; without names, those of all policies."
)
@work_options
def retry(names: tuple[str, ...], *, failed: bool, **address: Any) -> None:
    """Retry failed and waiting work now.

    A failed request stays as it is: the controller creates a new one that repeats its work, once,
    however often you run this command. A waiting request is tried at once.

    \b
    Exit code:
      0  all of the work was started
      1  some request was skipped, with a message
      2  could not run: wrong usage, no such policy or request, no cluster
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    if not names and not failed:
        raise click.UsageError("name policies or requests, or give --failed")
    if not asyncio.run(_retry(names, failed=failed, address=address)):
        sys.exit(FINDINGS)


async def _retry(names: tuple[str, ...], *, failed: bool, address: dict[str, str]) -> bool:
    async with workplace(**address) as place:
        keys = [policy_key(name) for name in names if not request_name(name)]
        for key in keys:
            await stored_policy(place, key)
        work = _Work(place)
        for request in await _named(place, filter(None, map(request_name, names))):
            await work.take(request, named=True, failed=failed)
        for key in keys if names else [""]:
            # Listed completely first: requests that are created meanwhile must not be retried.
            for request in [item async for item in place.requests.of_policy(key)]:
                await work.take(request, named=False, failed=failed)
        again = number(work.again, "failed request")
        click.echo(f"repeated: {again}; tried at once: {number(work.woken, 'waiting request')}")
        return work.good


async def _named(place: Workplace, names: Iterable[str]) -> list[UpdateRequest]:
    found: list[UpdateRequest] = []
    for name in names:
        try:
            found.append(await place.requests.get(name))
        except NotFound as error:
            msg = f"namespace {place.namespace} has no request {name} (or no longer has it)"
            raise InvalidSetting(msg) from error
    return found


class _Work:
    """Retries requests, and counts them."""

    def __init__(self, place: Workplace) -> None:
        self.good = True
        self.again = 0
        self.woken = 0
        self._place = place
        self._policies: dict[PolicyRef, CompiledPolicy | None] = {}

    async def take(self, request: UpdateRequest, *, named: bool, failed: bool) -> None:
        """Retry a request if its state allows; warn if not and it is ``named`` by the user."""
        state = request.status.state
        if state is State.FAILED and not (request.retried or request.retry_requested):
            await self._again(request, named=named)
        elif state is State.PENDING and request.status.next_attempt is not None and not failed:
            await self._mark(request, ANNOTATION_RETRY)
            self.woken += 1
        elif named:
            self._leave(request, _why_left(request))

    async def _again(self, request: UpdateRequest, *, named: bool) -> None:
        if not named and request.status.counts.patched and not await self._converges(request):
            self._leave(
                request,
                f"its rule may not come to the same result twice, and it has changed"
                f" {request.status.counts.patched} targets already; name the request to repeat it",
            )
            return
        await self._mark(request, ANNOTATION_RETRY_FAILED)
        click.echo(f"{request.name}: repeated by {_successor(request)}")
        self.again += 1

    async def _mark(self, request: UpdateRequest, annotation: str) -> None:
        mark = render_time(self._place.live.clock.now())
        await self._place.requests.annotate(request.name, {annotation: mark})

    async def _converges(self, request: UpdateRequest) -> bool:
        key = request.spec.policy
        if key not in self._policies:
            try:
                self._policies[key] = compile_policy(await self._place.policies.get(key))
            except (NotFound, InvalidPolicy):
                self._policies[key] = None
        policy = self._policies[key]
        program = None if policy is None else policy.background_program(request.spec.rule)
        # If the rule no longer exists, nothing is repeated: the new request ends at once.
        return program is None or program.converges

    def _leave(self, request: UpdateRequest, reason: str) -> None:
        warn(f"{request.name} is skipped: {reason}")
        self.good = False


def _successor(request: UpdateRequest) -> str:
    return retry_name(request.uid, sweep=request.spec.sweep)


def _why_left(request: UpdateRequest) -> str:
    if request.retried:
        return f"{request.retried} repeats its work"
    if request.retry_requested and request.status.state is State.FAILED:
        return f"{_successor(request)} will repeat its work when the controller has created it"
    if request.status.state is State.PENDING:
        return "it has not failed, and waits for no attempt"
    return f"it ended as {request.status.state}"
