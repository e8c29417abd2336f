"""Validation of a Hook or ClusterHook: compilation and rights."""

import asyncio
from collections.abc import Iterable, Sequence

from admission.asking import BoundedAccess, TooManyRights
from admission.checks import FORBIDDEN, UNAVAILABLE, ValidationDeps, refuse, warnings
from admission.decide import AdmissionResponse
from reconciler.api.meta import Object
from reconciler.clock import Deadline
from reconciler.dialects.finding import Finding
from reconciler.errors import ClusterError, Interrupted, InvalidPolicy
from reconciler.hooks.declared import DeclaredHook, compile_hook
from reconciler.services.authoring.lint import Level, hook_findings
from reconciler.services.authoring.rights import HookLack, HookRights, Need, cluster_role
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.ports.access import Access

_UNCHECKED = "its jq programs and the rights that it needs cannot be checked now"


async def check_hook(obj: Object, deps: ValidationDeps, deadline: Deadline) -> AdmissionResponse:
    """Return whether a hook can be stored, with warnings for its author.

    An executable runs with the rights of its program, which are not checked here.
    """
    try:
        async with deps.turn(deadline):
            hook, findings = await asyncio.to_thread(_compiled, obj, deps.protection)
        if hook.executable:
            return AdmissionResponse()
        async with asyncio.timeout(deadline.left):
            if hook.programs:
                async with deps.jq() as jq:
                    await compile_programs(hook.programs, jq)
            return await _checked(obj, hook, findings, deps)
    except InvalidPolicy as error:
        return refuse(obj, [str(item) for item in (error, *error.others)])
    except TooManyRights as error:
        return refuse(obj, [str(error)])
    except (ClusterError, Interrupted) as error:
        return refuse(obj, [f"{_UNCHECKED}: {error}; try again"], code=UNAVAILABLE)
    except TimeoutError:
        reason = f"{_UNCHECKED}: that takes more than {deadline.seconds:g} s; try again"
        return refuse(obj, [reason], code=UNAVAILABLE)


def _compiled(obj: Object, guard: Protection) -> tuple[DeclaredHook, tuple[Finding, ...]]:
    hook = compile_hook(obj)
    return hook, () if hook.executable else hook_findings(hook, guard)


async def _checked(
    obj: Object, hook: DeclaredHook, findings: Sequence[Finding], deps: ValidationDeps
) -> AdmissionResponse:
    if wrong := [item for item in findings if item.level is Level.ERROR]:
        return refuse(obj, [f"{item.location}: {item.text}" for item in wrong])
    lack = await _lack(hook, deps)
    if lack.rights and not deps.dry_run:
        return _not_allowed(obj, hook, lack.rights, deps)
    if deps.author is not None:
        missed = (await _rights_of(deps.author, deps, whole=True).check(hook)).rights
        if missed:
            return _not_the_authors(obj, missed, deps.author_name)
    unserved = (
        (f"{place}: the cluster does not serve {kind}, so the hook is not Ready yet", "")
        for place, kind in lack.unserved
    )
    missing = (
        (f"{need.location}: refused unless the controller gets {need.options[0]}", "")
        for need in lack.rights
    )
    surprises = ((f"{item.location}: {item.text}", item.cure) for item in findings)
    return AdmissionResponse(warnings=warnings([*unserved, *missing, *surprises]))


async def _lack(hook: DeclaredHook, deps: ValidationDeps) -> HookLack:
    """Return what a hook lacks, after waiting for rights that may arrive with it."""
    rights = _rights_of(deps.access, deps)

    async def again(lack: HookLack) -> HookLack:
        if lack.unserved:
            deps.forget()
        return await rights.check(hook)

    return await deps.patiently(
        await rights.check(hook), again=again, lacks=lambda now: now.rights or now.unserved
    )


def _rights_of(access: Access, deps: ValidationDeps, *, whole: bool = False) -> HookRights:
    bounded = BoundedAccess(access=access, gate=deps.gate)
    return HookRights(kinds=deps.kinds, access=bounded, whole=whole)


def _not_allowed(
    obj: Object, hook: DeclaredHook, needs: Sequence[Need], deps: ValidationDeps
) -> AdmissionResponse:
    lines = [f"{need.location}: '{deps.account}' may not {need.options[0]}" for need in needs]
    role = cluster_role(hook.ref.key, needs, deps.installation.background_label)
    cure = f"Apply this ClusterRole, then the hook again:\n\n{role}\n"
    return refuse(obj, lines, code=FORBIDDEN, cure=cure)


def _not_the_authors(obj: Object, missed: Iterable[Need], author: str) -> AdmissionResponse:
    lines = [f"{need.location}: '{author}' may not {need.options[0]}" for need in missed]
    cure = (
        "A hook may do only what its author may do: get these rights, or have it applied by a"
        " user who has them."
    )
    return refuse(obj, lines, code=FORBIDDEN, cure=cure)
