"""Measures the CPU time of rules in the other languages on one object, without any API call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any, Final

import click
from rich.table import Table

from reconciler.api.meta import Object, split_api_version
from reconciler.dialects.registry import compile_policy
from reconciler.engine.chain import Chain, grouped
from reconciler.engine.context import Context, request_context
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.patch import SHIPPED
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from tests.bench.admit import PODS, mod_rule
from tests.bench.figures import aligned

_LEAST: Final = 0.2
"""Minimum CPU seconds of all runs of a measurement, enough for the clock's resolution. The best
run counts; the others include the effects of other work on the machine."""
_RUNS: Final = 5
_MICRO: Final = 1e6
_POLICY: Final = {
    "apiVersion": "policy.kcloudlabs.io/v1alpha1",
    "kind": "ClusterOverridePolicy",
    "metadata": {"name": "p", "annotations": {"kube-retrofit.dev/objects": "all"}},
}
_POD: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {**item, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
            for item in PODS.body["spec"]["containers"]
        ]
    },
}
_ADDED: Final = {
    "op": "add",
    "path": "/metadata/labels/added-by",
    "value": "rule",
}
_OVERSELL: Final = {
    "type": "resourcesOversell",
    "operation": "replace",
    "resourcesOversell": {"cpuFactor": "0.5", "memoryFactor": "0.5"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cost and its goal.

    Attributes:
        seconds: The measured CPU seconds.
        goal: The most CPU seconds that are allowed.
    """

    name: str
    seconds: float
    goal: float

    @property
    def met(self) -> bool:
        """Whether the cost is within its goal."""
        return self.seconds <= self.goal


def mod_rules() -> list[Cost]:
    """Return the costs of ModRules on a Pod."""
    rule = _program({**mod_rule(0), "metadata": {"name": "rule-0", "namespace": "shop"}})
    constant = mod_rule(1)
    constant["spec"]["patch"][0]["value"] = "blue"
    constant["metadata"]["namespace"] = "shop"
    several = [
        _program({**mod_rule(number), "metadata": {"name": f"r-{number}", "namespace": "shop"}})
        for number in range(50)
    ]
    context, condition = _context(), rule.condition
    if condition is None or not condition.evaluate(context).passed:
        raise click.ClickException("the ModRule of the benchmark does not match")
    plain, templated = _program(constant).mutation, rule.mutation

    def patched(mutation: Any) -> Callable[[], object]:
        return lambda: mutation.apply(None, context, _POD, SHIPPED)

    one = _cpu(patched(plain))
    with_template = _cpu(patched(templated))
    return [
        Cost(
            name="item with $.kind", seconds=_cpu(lambda: condition.evaluate(context)), goal=5e-6
        ),
        Cost(name="template with one field", seconds=with_template - one, goal=40e-6),
        Cost(name="50 ModRules on a Pod", seconds=_cpu(lambda: _chained(several)), goal=5e-3),
    ]


def kinitiras() -> list[Cost]:
    """Return the costs of policies of kinitiras on a Pod."""
    plaintext = _override({"plaintext": [_ADDED]})
    template = _override({"template": _OVERSELL})
    return [
        Cost(name="plaintext", seconds=_cpu(lambda: _chained([plaintext])), goal=60e-6),
        Cost(name="template", seconds=_cpu(lambda: _chained([template])), goal=150e-6),
    ]


def table(costs: Sequence[Cost], title: str) -> Table:
    """Return the table of costs."""
    found = Table("on a Pod of two containers", "CPU", "at most", title=title)
    for cost in costs:
        style = "" if cost.met else "red"
        figures = (f"{seconds * _MICRO:.1f} µs" for seconds in (cost.seconds, cost.goal))
        found.add_row(cost.name, *figures, style=style)
    return aligned(found)


def _override(overriders: Mapping[str, Any]) -> Program:
    selectors = [{"apiVersion": "v1", "kind": "Pod"}]
    spec = {"resourceSelectors": selectors, "overrideRules": [{"overriders": overriders}]}
    return _program({**_POLICY, "spec": spec})


def _program(policy: Object) -> Program:
    return compile_policy(policy).programs[0]


def _context() -> Context:
    return request_context(
        operation="CREATE",
        obj=_POD,
        old_object=None,
        name="web",
        namespace="shop",
        kind=("", "v1", "Pod"),
        user_info=None,
    )


def _chained(programs: Sequence[Program]) -> None:
    """Apply rules to a Pod as the admission driver does, without its API calls."""
    chain = Chain(groups=grouped(programs), obj=_POD)
    for step in chain.steps():

        def run_on(seen: Mapping[str, Any], program: Program = step.program) -> RuleRun:
            return _run(program, seen)

        chain.settle(step.evaluate(run_on))
    if any(result.status is not RuleStatus.PASS for result in chain.results):
        raise click.ClickException("a rule of the benchmark changes nothing")


def _run(program: Program, obj: Mapping[str, Any]) -> RuleRun:
    group, version = split_api_version(str(obj["apiVersion"]))
    subject = Subject(
        obj=obj,
        group=group,
        version=version,
        kind=str(obj["kind"]),
        name="web",
        namespace="shop",
        operation="CREATE",
        namespace_labels={},
    )
    return RuleRun.of(program, subject, _context().with_object(obj))


def _cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call of ``work``."""
    best = float("inf")
    for _ in range(_RUNS):
        begun, rounds, spent = thread_time(), 0, 0.0
        while spent < _LEAST / _RUNS:
            for _ in range(10):
                work()
            rounds += 10
            spent = thread_time() - begun
        best = min(best, spent / rounds)
    return best
