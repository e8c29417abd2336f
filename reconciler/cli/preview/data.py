"""The output of a preview for programs."""

from typing import Any

from reconciler.api.meta import Object
from reconciler.cli.preview.baseline import reference
from reconciler.cli.preview.report import Report
from reconciler.cli.preview.rule_summary import Change, Problem, RuleSummary, Verdict
from reconciler.engine.patch import json_diff


def data_of(report: Report) -> Object:
    """Return a report as plain values."""
    found: Object = {
        "kind": "Preview",
        "server": report.server,
        "serverDryRun": report.tried,
        "requests": report.calls,
        "complete": not report.incomplete,
        "refusedPolicies": list(report.refusals),
        "missingPermissions": list(report.permissions),
        "rules": [_rule(rule) for rule in report.rules],
    }
    if report.difference is not None:
        found["baseline"] = {
            "missing": [reference(target) for target in report.difference.missing],
            "unexpected": [reference(target) for target in report.difference.unexpected],
        }
    return found


def _rule(rule: RuleSummary) -> Object:
    return {
        "policy": rule.program.origin.policy.key,
        "rule": rule.program.rule,
        "operation": rule.operation,
        "counts": {
            "read": rule.read,
            "triggers": rule.triggers,
            "targets": len(rule.verdicts),
            **{verdict.value: rule.count(verdict) for verdict in Verdict},
        },
        "notes": rule.notes,
        "failures": rule.failures,
        "problems": [_problem(item) for item in rule.problems.values()],
        "problemsLeftOut": rule.problems_left,
        "changes": [_change(item) for item in rule.shown],
        "changesLeftOut": rule.changes_left,
    }


def _problem(problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = {"verdict": problem.verdict.value, "trigger": problem.trigger}
    if problem.target is not None:
        found["target"] = reference(problem.target)
    return {**found, "message": problem.message}


def _change(change: Change) -> dict[str, Any]:
    return {
        "target": reference(change.target),
        "trigger": change.trigger,
        "triggers": change.triggers,
        "repeats": change.repeats,
        "patch": json_diff(change.before, change.after),
    }
