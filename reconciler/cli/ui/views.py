"""JSON views of requests for the page: their status, but no recorded content of objects."""

from typing import Any

from reconciler.api.updaterequest import TargetStatus, UpdateRequest, render_time
from reconciler.cli.work.report import data_of_progress, moment_of


def line_of(request: UpdateRequest) -> dict[str, Any]:
    """Return the row of a request in the list; times are RFC 3339 strings or null."""
    spec, status = request.spec, request.status
    return {
        "name": request.name,
        "policy": spec.policy.key,
        "rule": spec.rule,
        "source": spec.source.value,
        "operation": spec.operation,
        "trigger": str(spec.resource),
        "sweep": spec.sweep,
        "state": status.state.value,
        "reason": status.reason,
        "message": status.message,
        "created": render_time(request.created),
        "finished": moment_of(status.finished),
        "nextAttempt": moment_of(status.next_attempt),
        "attempts": status.attempts,
        "patched": status.counts.patched,
        "matched": status.counts.matched,
        "progress": data_of_progress(status.sweep),
    }


def page_of(request: UpdateRequest) -> dict[str, Any]:
    """Return the details of a request, including its targets."""
    status = request.status
    return line_of(request) | {
        "missingPermission": status.missing_permission,
        "retriedAs": request.retried,
        "counts": {
            "patched": status.counts.patched,
            "unchanged": status.counts.unchanged,
            "skipped": status.counts.skipped,
            "failed": status.counts.failed,
        },
        "targets": [_target(item) for item in status.targets],
    }


def _target(target: TargetStatus) -> dict[str, Any]:
    part = f"/{target.subresource}" if target.subresource else ""
    return {
        "target": f"{target.ref}{part}",
        "outcome": target.outcome.value,
        "message": target.message,
        "attempts": target.attempts,
        "before": target.version_before,
        "after": target.version_after,
    }
