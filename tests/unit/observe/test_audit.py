"""The audit log: the content of its lines, their destination, and failed writes."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import Outcome, RequestSpec, TargetStatus
from reconciler.errors import InvalidSetting
from reconciler.observe.audit import AuditLog
from reconciler.requests.draft import AdmissionRequest, Draft, TypeName

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
TRIGGER = ObjectRef(api_version="v1", kind="Secret", namespace="shop", name="s", uid="u-1")
SPEC = RequestSpec(policy=policy_named("shop/p"), rule="r", resource=TRIGGER)
REQUEST = AdmissionRequest(
    uid="review-1",
    operation="UPDATE",
    kind=TypeName(version="v1", name="Secret"),
    resource=TypeName(version="v1", name="secrets"),
    name="s",
    namespace="shop",
    user={"username": "ada", "groups": ["developers"], "extra": {"token": ["t0ps3cret"]}},
    object={"metadata": {"uid": "u-1"}, "data": {"password": "aHVudGVyMg=="}},
    manager="kubectl",
)


@contextmanager
def log(place: str, **more: Any) -> Iterator[tuple[AuditLog, list[Any]]]:
    said: list[Any] = []

    def complain(text: str, **facts: Any) -> None:
        said.append((text, facts))

    with AuditLog.to(place, lambda: NOW, complain, **more) as audit:
        yield audit, said


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_names_the_user_the_trigger_and_the_request(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    draft = Draft(name="ur-1", labels={}, spec=SPEC, alone="ur-2")
    with log(str(file)) as (audit, _):
        audit.triggered("recorded", REQUEST, [draft])
        audit.changed(REQUEST, policy_named("q"), "label")
    recorded, changed = lines(file.read_text())
    assert recorded == {
        "time": "2026-06-01T12:00:00.000000Z",
        "event": "recorded",
        "request": "ur-1",
        "ownRequest": "ur-2",
        "policyKind": "Policy",
        "policy": "shop/p",
        "rule": "r",
        "user": "ada",
        "groups": ["developers"],
        "manager": "kubectl",
        "operation": "UPDATE",
        "trigger": {
            "apiVersion": "v1",
            "kind": "Secret",
            "namespace": "shop",
            "name": "s",
            "uid": "u-1",
        },
        "uid": "review-1",
    }
    assert (changed["event"], changed["policy"], changed["rule"]) == ("changed", "q", "label")
    assert "request" not in changed
    # Neither the object's data nor the user fields that a login system adds are logged.
    assert "aHVudGVyMg" not in file.read_text()
    assert "t0ps3cret" not in file.read_text()


def test_changes_of_targets_are_logged_with_the_name_of_the_request() -> None:
    stream = io.StringIO()
    ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")
    target = TargetStatus(ref=ref, outcome=Outcome.PATCHED, version_before="7", version_after="8")
    with log("-", stdout=stream) as (audit, _):
        audit.worked(SPEC, [target], "ur-1")
        audit.worked(SPEC, [target])
    one, of_a_sweep = lines(stream.getvalue())
    assert (one["event"], one["request"], one["outcome"]) == ("target", "ur-1", "Patched")
    assert (one["target"]["name"], one["before"], one["after"]) == ("web", "7", "8")
    assert (one["trigger"]["name"], one["source"]) == ("s", "admission")
    assert "request" not in of_a_sweep


def test_lines_are_appended_and_a_rotated_file_is_started_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    with log(str(file)) as (audit, _):
        audit.changed(REQUEST, policy_named("q"), "label")
    with log(str(file)) as (audit, said):
        audit.changed(REQUEST, policy_named("q"), "label")
        assert len(lines(file.read_text())) == 2
        file.rename(tmp_path / "audit.1")
        audit.changed(REQUEST, policy_named("q"), "label")
        assert len(lines(file.read_text())) == 1
        assert said == []


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with log(str(folder / "audit")) as (audit, said):
        (folder / "audit").unlink()
        folder.rmdir()
        for _ in range(3):
            audit.changed(REQUEST, policy_named("q"), "label")
        assert [text for text, _ in said] == ["audit log cannot be written"]
        folder.mkdir()
        audit.changed(REQUEST, policy_named("q"), "label")
        assert len(lines((folder / "audit").read_text())) == 1
        (folder / "audit").unlink()
        folder.rmdir()
        audit.changed(REQUEST, policy_named("q"), "label")
        assert len(said) == 2


def test_a_path_in_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidSetting, match=r"--audit-log .*/absent/audit: No such file"),
        log(str(tmp_path / "absent" / "audit")),
    ):
        pass


def test_without_the_flag_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with log("") as (audit, said):
        audit.changed(REQUEST, policy_named("q"), "label")
    assert (capsys.readouterr().out, said) == ("", [])
