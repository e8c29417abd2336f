"""The check of a Hook or ClusterHook: what compiles, and what may be done."""

import asyncio
from collections.abc import Iterable, Sequence

from admission.asking import BoundedAccess, TooManyRights
from admission.checks import FORBIDDEN, UNAVAILABLE, ValidationDeps, refuse, warnings
from admission.decide import AdmissionResponse
from reconciler.api.meta import Object
from reconciler.clock import Deadline
from reconciler.errors import ClusterError, InvalidPolicy
from reconciler.hooks.declared import DeclaredHook, compile_hook
from reconciler.services.authoring.rights import HookLack, HookRights, Need, cluster_role
from reconciler.services.ports.access import Access

_UNCHECKED = "whether the controller may do what the hook asks for cannot be checked now"
_PAUSE = 0.25


async def check_hook(obj: Object, means: ValidationDeps, deadline: Deadline) -> AdmissionResponse:
    """Return whether a hook can be stored, and what its author should know.

    The rights of an executable are those of the program that runs it, and not asked for here.
    """
    try:
        async with means.turn(deadline):
            hook = await asyncio.to_thread(compile_hook, obj)
        if hook.executable:
            return AdmissionResponse()
        async with asyncio.timeout(deadline.left):
            return await _checked(obj, hook, means)
    except InvalidPolicy as error:
        return refuse(obj, [str(item) for item in (error, *error.others)])
    except TooManyRights as error:
        return refuse(obj, [str(error)])
    except ClusterError as error:
        return refuse(obj, [f"{_UNCHECKED}: {error}; try again"], code=UNAVAILABLE)
    except TimeoutError:
        reason = f"{_UNCHECKED}: no answer within {deadline.seconds:g} s; try again"
        return refuse(obj, [reason], code=UNAVAILABLE)


async def _checked(obj: Object, hook: DeclaredHook, means: ValidationDeps) -> AdmissionResponse:
    lack = await _lack(hook, means)
    if lack.rights and not means.dry_run:
        return _not_allowed(obj, hook, lack.rights, means)
    if means.author is not None:
        missed = (await _asked(hook, means, means.author, whole=True)).rights
        if missed:
            return _not_the_authors(obj, missed, means.author_name)
    unserved = (
        (f"{place}: the cluster does not serve {kind}, so the hook is not Ready yet", "")
        for place, kind in lack.unserved
    )
    missing = (
        (f"{need.location}: refused unless the controller gets {need.options[0]}", "")
        for need in lack.rights
    )
    return AdmissionResponse(warnings=warnings([*unserved, *missing]))


async def _lack(hook: DeclaredHook, means: ValidationDeps) -> HookLack:
    """Return what a hook lacks, after a while if what it needs may have come with it."""
    lack = await _asked(hook, means, means.access)
    loop = asyncio.get_running_loop()
    end = loop.time() + (0.0 if means.dry_run else means.patience)
    while (lack.rights or lack.unserved) and loop.time() < end:
        await asyncio.sleep(_PAUSE)
        if lack.unserved:
            means.forget()
        lack = await _asked(hook, means, means.access)
    return lack


async def _asked(
    hook: DeclaredHook, means: ValidationDeps, access: Access, *, whole: bool = False
) -> HookLack:
    bounded = BoundedAccess(access=access, gate=means.gate)
    return await HookRights(kinds=means.kinds, access=bounded, whole=whole).check(hook)


def _not_allowed(
    obj: Object, hook: DeclaredHook, needs: Sequence[Need], means: ValidationDeps
) -> AdmissionResponse:
    lines = [f"{need.location}: '{means.account}' may not {need.options[0]}" for need in needs]
    told = refuse(obj, lines, code=FORBIDDEN).message
    role = cluster_role(hook.ref.key, needs, means.installation.background_label)
    message = f"{told}\nApply this ClusterRole, then the hook again:\n\n{role}\n"
    return AdmissionResponse(allowed=False, code=FORBIDDEN, message=message)


def _not_the_authors(obj: Object, missed: Iterable[Need], author: str) -> AdmissionResponse:
    lines = [f"{need.location}: '{author}' may not {need.options[0]}" for need in missed]
    told = refuse(obj, lines, code=FORBIDDEN).message
    cure = (
        "A hook may do only what its author may do: get these rights, or have it applied by a"
        " user who has them."
    )
    return AdmissionResponse(allowed=False, code=FORBIDDEN, message=f"{told}\n{cure}")
