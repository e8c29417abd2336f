"""Cases of ModRules."""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import Object, split_api_version
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.dialects.kubemod.patch import read_path
from reconciler.engine.chain import Chain, StepResult, grouped
from reconciler.engine.context import request_context
from reconciler.engine.loads import ApiLoad
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch.paths import render_pointer
from reconciler.engine.program import CompiledPolicy, Program
from reconciler.engine.run import RuleRun
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.gval import UNDEFINED, compile_expression
from tests.conformance.dialects.cases import Case, runs

HOME = "my-namespace"
_KEY = re.compile(r'\["([^"]*)"\]')


@runs("modrule/expressions")
def run_expression(case: Case) -> None:
    """Evaluate an expression on a document; one language covers all languages of the data."""
    given, wanted = case["input"], case["expected"]
    found = _outcome(given["expression"], given["data"])
    if wanted.get("unordered"):
        assert sorted(map(json.dumps, found["value"])) == sorted(map(json.dumps, wanted["value"]))
    else:
        assert found == wanted


def _outcome(source: str, data: Any) -> dict[str, Any]:
    try:
        expression = compile_expression(source)
    except InvalidPolicy:
        return {"parseError": True}
    try:
        value = expression.evaluate(data)
    except EvaluationError:
        return {"evalError": True}
    return {"undefined": True} if value is UNDEFINED else {"value": _shown(value)}


def _shown(value: Any) -> Any:
    if value is UNDEFINED:
        return {"$undefined": True}
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


@runs("modrule/path")
def run_path(case: Case) -> None:
    """Fill captured keys into a path, with their text as the original writes it."""
    given, wanted = case["input"], case["expected"]
    keys = _KEY.findall(given["selectKey"])
    if given["pathTemplate"] in ("", "/"):
        # No ModRule can have these paths, because they name no field.
        assert wanted["path"] == given["pathTemplate"]
        return
    path = read_path(given["pathTemplate"], "path", captures=True)
    if wanted.get("error"):
        with pytest.raises(EvaluationError):
            path.filled(keys)
    else:
        assert render_pointer(path.filled(keys)) == wanted["path"]


@runs("modrule/match")
def run_match(case: Case) -> None:
    """Evaluate the conditions of rules, without their scope."""
    given, wanted = case["input"], case["expected"]
    fired = [
        program.condition is None or program.condition.evaluate(_context(given["object"])).passed
        for rule in given["rules"]
        for program in _compile(rule, HOME).programs
    ]
    assert fired == [wanted["match"]] * len(fired)


@runs("modrule/patch")
def run_patch(case: Case) -> None:
    """Run rules on a request and compare the resulting object."""
    given, wanted = case["input"], case["expected"]
    programs, refused = _load(given["rules"], given["defaultRuleNamespace"])
    assert refused or not wanted.get("loadError")
    chain = _chain(programs, given)
    failed = [result for result in chain.results if result.status is RuleStatus.ERROR]
    if wanted.get("error"):
        assert failed or refused
        assert chain.obj == given["object"]
    else:
        assert chain.obj == wanted["object"]


@runs("modrule/reject")
def run_reject(case: Case) -> None:
    """Run rules on a request and compare the messages of the rules that refuse it."""
    given, wanted = case["input"], case["expected"]
    programs, refused = _load(given["rules"], given["ruleNamespace"])
    assert bool(refused) is bool(wanted.get("loadError"))
    if refused:
        return
    request = {"operation": "CREATE", "namespace": given["ruleNamespace"], **given}
    said = [
        result.program.verdict.message(_context(given["object"]))
        for result in _chain(programs, request).results
        if result.fired and result.program.verdict is not None
    ]
    assert bool(said) is wanted["rejected"]
    assert said == wanted["messages"]


def _load(rules: list[Object], namespace: str) -> tuple[list[Program], list[InvalidPolicy]]:
    programs: list[Program] = []
    refused: list[InvalidPolicy] = []
    for rule in rules:
        try:
            programs += _compile(rule, namespace).programs
        except InvalidPolicy as error:
            refused.append(error)
    return programs, refused


def _compile(rule: Object, namespace: str) -> CompiledPolicy:
    meta = {"namespace": namespace, **rule["metadata"]}
    return KUBEMOD.compile({**rule, "metadata": meta})


def _chain(programs: list[Program], given: Mapping[str, Any]) -> Chain:
    chain = Chain(groups=grouped(programs), obj=copy.deepcopy(given["object"]))
    for step in chain.steps():

        def run_on(obj: Mapping[str, Any], program: Program = step.program) -> RuleRun:
            return _run(program, obj, given)

        try:
            result: StepResult = step.evaluate(run_on)
        except EvaluationError as error:
            result = step.failed(error)
        chain.settle(result)
    return chain


def _run(program: Program, obj: Mapping[str, Any], given: Mapping[str, Any]) -> RuleRun:
    group, version = split_api_version(obj["apiVersion"])
    subject = Subject(
        obj=obj,
        group=group,
        version=version,
        kind=obj["kind"],
        namespace=given["namespace"],
        operation=given["operation"],
        namespace_labels={},
    )
    return RuleRun.of(program, subject, _context(obj, given))


def _context(obj: Mapping[str, Any], given: Mapping[str, Any] = {}) -> Any:
    group, version = split_api_version(obj["apiVersion"])
    context = request_context(
        operation=given.get("operation", "CREATE"),
        obj=obj,
        old_object=obj,
        name="",
        namespace=given.get("namespace", HOME),
        kind=(group, version, obj["kind"]),
        user_info=None,
    )
    cluster = given.get("cluster") or {}
    return context.with_loads(
        {
            ApiLoad(method="GET", path=f"/api/v1/{plural}/{item['metadata']['name']}"): item
            for plural, items in cluster.items()
            for item in items
        }
    )
