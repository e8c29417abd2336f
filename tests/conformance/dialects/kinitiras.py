"""Cases of kinitiras."""

import asyncio
import pathlib
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from reconciler.api.meta import split_api_version
from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kinitiras.condition import SIGNS
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.dialects.kinitiras.origin import read_origin
from reconciler.dialects.kinitiras.selectors import read_selector
from reconciler.dialects.kinitiras.texts import (
    ABSENT,
    Path,
    filled,
    filled_selector,
    pieces_of,
    read_number,
    read_path,
)
from reconciler.dialects.kinitiras.tolerations import read_tolerations
from reconciler.engine.allowance import UNLIMITED
from reconciler.engine.chain import Chain, by_policy
from reconciler.engine.context import request_context
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.isolation.cue import CueCommand, CueLimits, WithCue
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.loader import MemoryLoader
from reconciler.services.processing.loading import Loads
from tests.conformance.dialects.cases import Case, runs
from tests.conformance.verdicts import NOT_YET

_NO_REASON = "it is refused"
"""The reason of a policy that gives none."""


@runs("kinitiras/selectors")
def run_selectors(case: Case) -> None:
    """Test whether any selector matches an object; a refused selector matches nothing."""
    obj = case["input"]["object"]
    found = [_selects(raw, obj) for raw in case["input"]["selectors"]]
    assert any(found) is case["expected"]["match"]


def _selects(raw: Any, obj: dict[str, Any]) -> bool:
    try:
        selector = read_selector(raw, "spec.resourceSelectors[0]")
    except InvalidPolicy:
        return False
    meta = obj["metadata"]
    return selector.matches(obj, name=meta["name"], namespace=meta.get("namespace", ""))


@runs("kinitiras/operators")
def run_operators(case: Case) -> None:
    """Evaluate one of the small notations, such as a placeholder or a path."""
    assert _OPERATORS[case["kind"]](case["input"]) == case["expected"]


def _placeholder(given: Any) -> Any:
    obj = given["value"]
    for key in reversed(given["keys"]):
        obj = {key: obj}
    try:
        found = filled(given["reference"], obj)
    except EvaluationError:
        return {"error": True}
    return {"found": found is not None, "value": found or ""}


def _label_reference(given: Any) -> Any:
    found = filled_selector(given["selector"], given["object"])
    return {"found": found is not None, "selector": found}


def _pod_phase(given: Any) -> Any:
    obj = given["object"] or {}
    found = Path(("status", "phase")).look_up(obj) if obj.get("kind") == "Pod" else ABSENT
    return {"value": found if isinstance(found, str) else ""}


def _number(given: Any) -> Any:
    number = read_number(given["number"], "operationWith")
    return {"value": number.value, "isPercent": number.is_percent}


def _first_path(given: Any) -> str:
    return next(piece for piece, is_path in pieces_of(given["text"]) if is_path)


_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "placeholder": _placeholder,
    "label-reference": _label_reference,
    "placeholder-key": lambda given: {"value": _first_path(given)},
    "path": lambda given: {"value": read_path(given["path"], "path").text},
    "condition-sign": lambda given: {"value": SIGNS.get(given["condition"], given["condition"])},
    "number": _number,
    "pod-phase": _pod_phase,
}


@runs("kinitiras/overridepolicies")
def run_override(case: Case) -> None:
    """Apply policies, or one typed edit, to an object."""
    if case["kind"] == "apply":
        assert _overridden(case["input"]) == case["expected"]["annotations"]
        return
    edit, *_ = read_origin(case["input"]["origin"], "spec.overrideRules[0].overriders.origin")
    operation = edit.patch(case["input"]["object"])
    path = "/" + "/".join(operation.path)
    found = {"op": operation.name, "path": path, "value": operation.value}
    assert found == case["expected"]["firstPatch"]


@runs("kinitiras/validation")
def run_validation(case: Case) -> None:
    """Test whether a policy is accepted, or whether it accepts an object."""
    if case["kind"] == "apply":
        assert _verdict(case["input"]) == case["expected"]["result"]
        return
    assert _accepted(case["kind"], case["input"]) is case["expected"]["accepted"]


def _accepted(kind: str, given: Any) -> bool:
    try:
        match kind:
            case "policy-tolerations":
                read_tolerations(given["tolerations"], "tolerations")
            case "policy-origin":
                read_origin(given["origin"], "origin")
            case _:
                if not _is_checked(given):
                    return True
                compiled = KINITIRAS.compile({"metadata": {"name": "policy"}, **given["object"]})
                for location, source in compiled.cue:
                    asyncio.run(_command().check(source, location=location))
    except InvalidPolicy:
        return False
    return True


def _is_checked(given: Any) -> bool:
    """Return whether the admission server checks a policy: not a deletion or an unchanged one."""
    old = given.get("oldObject") or {}
    unchanged = bool(old.get("spec") == given["object"].get("spec"))
    return given.get("operation") != "DELETE" and not unchanged


def _command() -> CueCommand:
    """Return the CUE evaluator, with a time limit that suffices on a busy machine."""
    file = shutil.which("cue")
    if file is None:
        pytest.skip(f"{NOT_YET}the cue command is not installed")
    return CueCommand(file=pathlib.Path(file), limits=CueLimits(seconds=30.0))


def _settled(given: Any, kinds: dict[str, str]) -> Chain:
    """Return the chain of policies with their results on a request."""
    obj, old = given["object"], given.get("oldObject")
    meta = obj["metadata"]
    programs = [
        program
        for field, kind in kinds.items()
        for item in given.get(field) or ()
        for program in _programs(_policy(kind, item))
    ]
    context = request_context(
        operation=given["operation"],
        obj=obj,
        old_object=old,
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        kind=("", "v1", obj["kind"]),
        user_info=None,
    )
    group, version = split_api_version(obj["apiVersion"])
    subject = Subject(
        obj=obj,
        group=group,
        version=version,
        kind=obj["kind"],
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        operation=given["operation"],
    )
    chain = Chain(groups=by_policy(programs), obj=obj)
    for step in chain.steps():
        loads = Loads(WithCue(MemoryLoader(MemoryCluster()), _command()))

        def run_on(
            seen: Mapping[str, Any], program: Program = step.program, loads: Loads = loads
        ) -> RuleRun:
            return RuleRun.of(
                program,
                subject.with_object(seen, UNLIMITED),
                loads.of(context.with_object(seen)),
            )

        chain.settle(asyncio.run(loads.evaluate(partial(step.evaluate, run_on))))
    return chain


def _programs(policy: dict[str, Any]) -> tuple[Program, ...]:
    """Return the rules of a policy, or none if the policy is refused."""
    try:
        return KINITIRAS.compile(policy).programs
    except InvalidPolicy:
        return ()


def _policy(kind: str, written: Any) -> dict[str, Any]:
    meta = {**written["metadata"], "annotations": {ANNOTATION: "all"}}
    head = {"apiVersion": "policy.kcloudlabs.io/v1alpha1", "kind": kind}
    return {**head, **written, "metadata": meta}


def _overridden(given: Any) -> Any:
    kinds = {"clusterPolicies": "ClusterOverridePolicy", "policies": "OverridePolicy"}
    return _settled(given, kinds).obj["metadata"]["annotations"]


def _verdict(given: Any) -> dict[str, Any]:
    chain = _settled(given, {"policies": "ClusterValidatePolicy"})
    failed = [item for item in chain.results if item.status is not RuleStatus.SKIP]
    if not failed:
        return {"reason": "", "valid": True}
    # The original gives the reason of the first policy that refuses, without the policy's name.
    reason = failed[0].message.removeprefix(f"{failed[0].policy.key}: ")
    return {"reason": reason.removesuffix(_NO_REASON), "valid": False}
