"""Validation of a ClusterPolicy or Policy: compilation, lint findings and rights."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from admission.asking import BoundedAccess, TooManyRights
from admission.checks import FORBIDDEN, UNAVAILABLE, ValidationDeps, refuse, warnings
from admission.decide import AdmissionResponse
from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object, own_namespaces
from reconciler.clock import Deadline
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import CompiledPolicy, Phase
from reconciler.errors import ClusterError, Forbidden, Invalid, InvalidPolicy
from reconciler.installation import Installation
from reconciler.requests.account import PLACE, parse_account
from reconciler.requests.limits import limits_of
from reconciler.services.authoring.lint import (
    Finding,
    Level,
    Scope,
    find_errors,
    find_surprises,
    limit_findings,
)
from reconciler.services.authoring.rights import (
    Lack,
    Need,
    RightsCheck,
    account_roles,
    cluster_role,
)
from reconciler.services.catalog.caveats import filtered
from reconciler.services.ports.access import Access

_UNCHECKED = "whether the controller may change the targets cannot be checked now"
_UNCOMPILED = "whether matchConditions compile cannot be checked now"
_CONDITIONS = "spec.webhookConfiguration"


async def check_policy(
    policy: Object, deps: ValidationDeps, deadline: Deadline
) -> AdmissionResponse:
    """Return whether a policy can be stored, with warnings for its author."""
    try:
        return await _checked(policy, deps, deadline)
    except TimeoutError:
        reason = f"{_UNCHECKED}: no answer within {deadline.seconds:g} s; try again"
        return refuse(policy, [reason], code=UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckResults:
    """The results from the API server for a policy that compiles.

    Attributes:
        lack: Rights and kinds missing for the account that works for the policy.
        missed: Rights that the policy uses and its author lacks.
        unverified: Rights that the admission server lacks to verify old objects.
        unread: Rights that the admission server lacks to read context entries.
    """

    lack: Lack
    missed: tuple[Need, ...]
    scope: Scope
    unverified: tuple[Need, ...]
    unread: tuple[Need, ...]


async def _checked(policy: Object, deps: ValidationDeps, deadline: Deadline) -> AdmissionResponse:
    try:
        compiled = await _compiled(policy, deps, deadline)
        async with asyncio.timeout(deadline.left):
            results = await _ask(compiled, deps)
            refused = await _check_conditions(policy, compiled, deps)
    except InvalidPolicy as error:
        return refuse(policy, _lines(find_errors(error)))
    except TooManyRights as error:
        return refuse(policy, [str(error)])
    except ClusterError as error:
        reason = _unchecked(error, deps.installation, _UNCHECKED)
        return refuse(policy, [reason], code=UNAVAILABLE)
    if refused is not None:
        return refused
    async with deps.turn(deadline):
        findings = await asyncio.to_thread(
            find_surprises, policy, compiled, scope=results.scope, protection=deps.protection
        )
    return _respond(policy, compiled, results, findings, deps)


async def _compiled(policy: Object, deps: ValidationDeps, deadline: Deadline) -> CompiledPolicy:
    own = own_namespaces(deps.protection.namespace)
    async with deps.turn(deadline):
        compiled = await asyncio.to_thread(compile_policy, policy)
    compiled = compiled.acting_as(parse_account(policy, reserved=own))
    if deps.cue is not None:
        async with asyncio.timeout(deadline.left):
            for location, source in compiled.cue:
                await deps.cue.check(source, location=location)
    return compiled


async def _ask(compiled: CompiledPolicy, deps: ValidationDeps) -> _CheckResults:
    lack, missed = await _missing_rights(compiled, deps)
    return _CheckResults(
        lack=lack,
        missed=missed,
        scope=await deps.scope(),
        unverified=await _unverified(compiled, deps),
        unread=await _unread(compiled, deps),
    )


def _respond(
    policy: Object,
    compiled: CompiledPolicy,
    results: _CheckResults,
    findings: Sequence[Finding],
    deps: ValidationDeps,
) -> AdmissionResponse:
    """Return the refusal of a policy, or the response with warnings for its author."""
    lack, installation = results.lack, deps.installation
    errors = [item for item in findings if item.level is Level.ERROR]
    if errors or lack.unserved_targets:
        return refuse(policy, _lines(errors) or list(_unserved(lack)))
    if lack.rights and not deps.dry_run:
        return _not_allowed(policy, compiled, lack, deps)
    if results.missed:
        return _not_the_authors(policy, results.missed, deps.author_name, compiled.account)
    texts = (
        ((str(item), "") for item in filtered(compiled, deps.filters())),
        _of_rights(lack, compiled.account),
        _texts(item for item in findings if item.level is Level.WARNING),
        _unfired(lack),
        _believed(results.unverified, installation),
        failing(results.unread, installation),
    )
    return AdmissionResponse(warnings=warnings(chain.from_iterable(texts)))


async def _missing_rights(
    compiled: CompiledPolicy, deps: ValidationDeps
) -> tuple[Lack, tuple[Need, ...]]:
    """Return what a policy lacks and, if that is nothing, what its author lacks."""
    if compiled.account is None:
        lack = await _lack(compiled, deps, deps.access)
        return lack, await _missed_by_author(compiled, deps) if not lack.rights else ()
    # The rights of an account must not be disclosed to any author.
    if missed := await _missed_by_author(compiled, deps):
        return Lack(), missed
    return await _lack(compiled, deps, deps.access.of(compiled.account)), ()


async def _missed_by_author(compiled: CompiledPolicy, deps: ValidationDeps) -> tuple[Need, ...]:
    if deps.author is None:
        return ()
    account = compiled.account
    if account is not None and await deps.author.may(account.impersonation):
        return ()
    # An author who may not impersonate the account needs all rights that the policy uses.
    return (await _lack(compiled.acting_as(None), deps, deps.author, whole=True)).rights


async def _unverified(compiled: CompiledPolicy, deps: ValidationDeps) -> tuple[Need, ...]:
    if deps.verifier is None:
        return ()
    with contextlib.suppress(ClusterError):  # Only warnings depend on it.
        return await rights_of(deps.verifier, deps).unverified(compiled)
    return ()


async def _unread(compiled: CompiledPolicy, deps: ValidationDeps) -> tuple[Need, ...]:
    with contextlib.suppress(ClusterError):  # Only warnings depend on it.
        kept = deps.stored_entries(compiled.global_entries(Phase.ADMISSION))
        return await rights_of(deps.reader, deps).unread(compiled, kept)
    return ()


def rights_of(access: Access, deps: ValidationDeps, *, whole: bool = False) -> RightsCheck:
    """Return a check of the rights of an account, within the limit of concurrent reviews."""
    bounded = BoundedAccess(access=access, gate=deps.gate)
    return RightsCheck(kinds=deps.kinds, access=bounded, whole=whole)


async def _lack(
    compiled: CompiledPolicy, deps: ValidationDeps, access: Access, *, whole: bool = False
) -> Lack:
    """Return what a policy lacks, after waiting for rights that may arrive with it."""
    rights = rights_of(access, deps, whole=whole)
    lack = await rights.check(compiled)
    if lack.unserved_targets:
        # Its CustomResourceDefinition may have been applied with the policy.
        deps.forget()
        lack = await rights.check(compiled)
    return await deps.patiently(
        lack, again=lambda _: rights.check(compiled), lacks=lambda now: now.rights
    )


async def _check_conditions(
    policy: Object, compiled: CompiledPolicy, deps: ValidationDeps
) -> AdmissionResponse | None:
    """Return the refusal of a policy for its conditions, or None if they compile."""
    if not compiled.match_conditions:
        return None
    try:
        await deps.conditions.check(compiled.match_conditions)
    except Invalid as error:
        text = str(error).replace("matchConditions[", f"{_CONDITIONS}.matchConditions[")
        return refuse(policy, [text])
    except ClusterError as error:
        reason = _unchecked(error, deps.installation, _UNCOMPILED)
        return refuse(policy, [reason], code=UNAVAILABLE)
    return None


def check_limits(policy: Object, old: Object) -> AdmissionResponse:
    """Return whether annotations can be stored when only metadata changes.

    Limits that were stored while the webhook was down do not block unrelated changes. If the
    account changes too, `check_policy` is called instead.
    """
    if limits_of(policy) == limits_of(old):
        return AdmissionResponse()
    findings = list(limit_findings(policy))
    if errors := [item for item in findings if item.level is Level.ERROR]:
        return refuse(policy, _lines(errors))
    noted = (item for item in findings if item.level is Level.WARNING)
    return AdmissionResponse(warnings=warnings(_texts(noted)))


def _lines(findings: Iterable[Finding]) -> list[str]:
    return [
        f"{item.location}: {item.text}" + (f"; {item.cure}" if item.cure else "")
        for item in findings
    ]


def _unchecked(error: ClusterError, installation: Installation, what: str) -> str:
    cure = "try again"
    if isinstance(error, Forbidden):
        role = f"{installation.role_prefix}admission-controller:core"
        cure = f"the role {role} has this right, apply it again"
    return f"{what}: {error}; {cure}"


def _unserved(lack: Lack) -> Iterator[str]:
    for place, kind in lack.unserved_targets:
        yield (
            f"{place}: the cluster does not serve {kind}; correct apiVersion and kind, or install"
            " its CustomResourceDefinition first"
        )


def _not_allowed(
    policy: Object, compiled: CompiledPolicy, lack: Lack, deps: ValidationDeps
) -> AdmissionResponse:
    lines = [
        f"{place}: auth check fails, additional privileges are required for the service account"
        f" '{_who(place, compiled, deps)}': it may not {', '.join(texts)}"
        for place, texts in _by_place(lack.rights).items()
    ]
    if compiled.account is not None:
        roles = account_roles(compiled.key, compiled.account, lack.rights, deps.controller)
        cure = f"Apply this, then the policy again:\n\n{roles}\n"
        return refuse(policy, lines, code=FORBIDDEN, cure=cure)
    places = {right.namespace for need in lack.rights for right in need.options}
    where = ""
    if "" not in places:
        where = f" (or grant the same by a Role in namespace {', '.join(sorted(places))})"
    role = cluster_role(compiled.key, lack.rights, deps.installation.background_label)
    cure = f"Apply this ClusterRole{where}, then the policy again:\n\n{role}\n"
    return refuse(policy, lines, code=FORBIDDEN, cure=cure)


def _who(place: str, compiled: CompiledPolicy, deps: ValidationDeps) -> object:
    """Return the account that lacks the rights for a place of a policy."""
    if place == PLACE:
        return deps.controller
    return deps.account if compiled.account is None else compiled.account


def _not_the_authors(
    policy: Object,
    missed: Iterable[Need],
    author: str,
    account: ServiceAccount | None,
) -> AdmissionResponse:
    lines = [
        f"{place}: '{author}' may not {', '.join(texts)}"
        for place, texts in _by_place(missed).items()
    ]
    cure = (
        "A policy may do only what its author may do: get these rights, or have it applied by"
        " a user who has them."
    )
    if account is not None:
        cure += f" The right to {account.impersonation} named {account.name} is enough, too."
    return refuse(policy, lines, code=FORBIDDEN, cure=cure)


def _by_place(needs: Iterable[Need]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for need in needs:
        right = need.options[0]
        found.setdefault(need.location, {})[str(right)] = None
    return {place: list(texts) for place, texts in found.items()}


def _texts(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    for item in findings:
        yield f"{item.location}: {item.text}", item.cure


def _of_rights(lack: Lack, account: ServiceAccount | None) -> Iterator[tuple[str, str]]:
    for place, texts in _by_place(lack.rights).items():
        ours = account is None or place == PLACE
        who = "the controller" if ours else f"ServiceAccount {account}"
        text = f"{place}: refused unless a role grants {who} {', '.join(texts)}"
        yield text, "a dry run stores none"


def _unfired(lack: Lack) -> Iterator[tuple[str, str]]:
    for place, kind in lack.unserved_triggers:
        yield f"{place}: the cluster does not serve {kind}, so nothing fires it yet", ""


def _believed(needs: Iterable[Need], installation: Installation) -> Iterator[tuple[str, str]]:
    account = installation.admission_account
    for place, texts in _by_place(needs).items():
        what = f"{place}: any client of the webhook can forge old and deleted objects"
        yield f"{what}: grant {account} {', '.join(texts)}", ""


def failing(needs: Iterable[Need], installation: Installation) -> Iterator[tuple[str, str]]:
    """Yield the effect of missing rights on entries read at admission, and the remedy."""
    for place, texts in _by_place(needs).items():
        text = (
            f"{place}: requests that read it fail unless a role grants"
            f" {installation.admission_account} {', '.join(texts)}"
        )
        yield (text, f'label that ClusterRole {installation.admission_label}: "true"')
