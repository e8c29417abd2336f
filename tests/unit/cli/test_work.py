"""`retrofit run`, `status` and `retry` without a cluster: names, figures and messages."""

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reconciler.api.kinds import policy_named
from reconciler.api.meta import ObjectRef
from reconciler.api.updaterequest import (
    RequestSpec,
    RequestStatus,
    State,
    SweepProgress,
    UpdateRequest,
)
from reconciler.cli.main import retrofit
from reconciler.cli.output.screen import Screen
from reconciler.cli.work.overview import overview
from reconciler.cli.work.place import policy_key, request_name
from reconciler.cli.work.report import data_of, lines_of
from reconciler.errors import InvalidSetting
from tests.unit.cli.nowhere import KUBECONFIG

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def request(name: str, *, retried: str = "", sweep: bool = False, **status: Any) -> UpdateRequest:
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="shop", name=f"of-{name}")
    return UpdateRequest(
        name=name,
        namespace="kyverno",
        uid=f"uid-{name}",
        resource_version="1",
        created=NOW - timedelta(minutes=2),
        labels={},
        spec=RequestSpec(policy=policy_named("p"), rule="r", resource=ref, sweep=sweep),
        status=RequestStatus(**status),
        retried=retried,
    )


def forbidden(name: str, seconds: float) -> UpdateRequest:
    return request(
        name,
        reason="Forbidden",
        message="no right",
        missing_permission="patch secrets in namespace shop",
        next_attempt=NOW + timedelta(seconds=seconds),
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("reload", "reload"),
        ("cpol/reload", "reload"),
        ("clusterpolicy/reload", "reload"),
        ("shop/restart", "shop/restart"),
        ("policy/shop/restart", "shop/restart"),
        ("pol/shop/restart", "shop/restart"),
        ("modrule/shop/restart", "modrule/shop/restart"),
        ("modrules/shop/restart", "modrules/shop/restart"),
        ("overridepolicy/shop/place", "overridepolicy/shop/place"),
        ("clusteroverridepolicy/place", "clusteroverridepolicy/place"),
        ("clustervalidatepolicies/guard", "clustervalidatepolicies/guard"),
    ],
)
def test_policy_names_have_the_forms_of_kubectl(name: str, key: str) -> None:
    assert policy_key(name) == key


@pytest.mark.parametrize(
    "name",
    ["policy/restart", "pol/x", "a/b/c", "", "/", "modrule/a/b/c", "clusteroverridepolicy/a/b"],
)
def test_an_invalid_policy_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match="NAMESPACE/NAME"):
        policy_key(name)


def test_a_request_is_distinguished_from_a_policy_by_its_name() -> None:
    digest = "0" * 32
    assert request_name(f"ur-{digest}") == f"ur-{digest}"
    assert request_name(f"ur/sweep-{digest}") == f"sweep-{digest}"
    assert request_name(f"run-{digest}") == f"run-{digest}"
    assert request_name(f"hook-{digest}") == f"hook-{digest}"
    assert request_name("ur-of-mine") == ""


def test_requests_that_wait_for_one_right_are_one_trouble() -> None:
    found = overview(
        [forbidden("a", 30), forbidden("b", 12), forbidden("c", 99), forbidden("d", 60)],
        policies=[("p", "")],
    )
    (trouble,) = found.troubles
    assert (trouble.count, trouble.next_attempt) == (4, NOW + timedelta(seconds=12))
    lines = list(lines_of(found, Screen(), now=NOW))
    assert lines[1].split() == ["p", "4", "0", "0", "0", "2m"]
    assert "  4 requests of p / r, Forbidden: no right" in lines
    assert "    next attempt: in 12s" in lines
    (cure,) = [line for line in lines if "to do:" in line]
    assert "patch secrets in namespace shop" in cure
    assert lines[-1] == (
        "    a (ConfigMap shop/of-a), b (ConfigMap shop/of-b), c (ConfigMap shop/of-c) and 1 more"
    )


def test_a_failed_request_that_was_retried_is_not_a_trouble() -> None:
    failed: dict[str, Any] = {"state": State.FAILED, "reason": "TargetNotFound"}
    pair = [request("a", **failed), request("b", retried="c", **failed)]
    found = overview(pair, policies=[("p", "")])
    assert [item.count for item in found.troubles] == [1]
    assert found.policies[0].states[State.FAILED] == 1
    assert "kubectl retrofit retry p --failed" in "\n".join(lines_of(found, Screen(), now=NOW))


def test_requests_of_a_deleted_policy_get_no_advice() -> None:
    failed = request("a", state=State.FAILED, reason="TargetNotFound", message="not found")
    found = overview([failed, request("b", reason="PatchWar")], policies=[("other", "")])
    text = "\n".join(lines_of(found, Screen(), now=NOW))
    assert "policy p was deleted; what it left is removed by itself" in text
    assert "to do" not in text
    assert [item["deleted"] for item in data_of(found)["policies"]] == [False, True]
    # Without the right to list policies it is unknown whether the policy was deleted.
    found = overview([failed], policies=[], complete=False)
    assert "to do: correct the cause" in "\n".join(lines_of(found, Screen(), now=NOW))


def test_a_sweep_shows_its_progress() -> None:
    progress = SweepProgress(done=120, total=500, failed=2, eta="8s")
    swept = replace(request("s", sweep=True), status=RequestStatus(sweep=progress))
    found = overview([swept], policies=[], namespace="elsewhere")
    assert found.troubles == []
    (line,) = [line for line in lines_of(found, Screen(), now=NOW) if "120/500" in line]
    assert line == "  p / r: Pending, 120/500 done, 2 separate requests, 8s to go (s)"
    (data,) = data_of(found)["sweeps"]
    assert (data["done"], data["total"], data["timeLeft"]) == (120, 500, "8s")


def test_only_triggers_of_the_given_namespace_are_counted() -> None:
    found = overview([forbidden("a", 1)], policies=[("p", "")], namespace="elsewhere")
    assert found.troubles == []
    assert not found.policies[0].states


def test_a_policy_that_is_not_ready_is_shown_with_the_reason() -> None:
    found = overview([], policies=[("p", "spec.rules[0]: wrong")])
    assert "policy p is not ready: spec.rules[0]: wrong" in list(
        lines_of(found, Screen(), now=NOW)
    )


def test_an_empty_overview_is_reported_as_empty() -> None:
    found = overview([], policies=[])
    assert list(lines_of(found, Screen(), now=NOW)) == ["no policy and no request found"]
    assert json.dumps(data_of(found))


@pytest.mark.parametrize("words", [["run", "p"], ["status"], ["retry", "p"]])
def test_an_unreachable_cluster_is_reported_in_one_line(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    done = CliRunner().invoke(retrofit, [*words, "--kubeconfig", str(path)])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [(["status"], 130), (["top"], 130), (["status", "--watch"], 0), (["top", "--watch"], 0)],
)
def test_only_a_watch_ends_well_by_ctrl_c(words: list[str], code: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.replace("127.0.0.1:1", f"{host}:{port}"))
        command = [sys.executable, "-m", "reconciler.cli.main", *words, "--kubeconfig", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            silent.settimeout(60)
            accepted, _ = silent.accept()
            with accepted:
                program.send_signal(signal.SIGINT)
                assert program.wait(timeout=20) == code


def test_retry_requires_a_policy_a_request_or_a_flag() -> None:
    done = CliRunner().invoke(retrofit, ["retry"])
    assert done.exit_code == 2
    assert "--failed" in done.stderr


def test_a_patch_war_is_shown_with_the_command_to_retry() -> None:
    war = "Secret a/s: /data/color was undone 10 times within 5m"
    found = overview([request("a", reason="PatchWar", message=war)], policies=[("p", "")])
    lines = list(lines_of(found, Screen(), now=NOW))
    assert f"  1 request of p / r, PatchWar: {war}" in lines
    (cure,) = [line for line in lines if "to do:" in line]
    assert cure.endswith("kubectl retrofit retry p")


def test_a_blocked_queue_is_explained_in_one_line() -> None:
    hook = {
        "apiVersion": "kube-retrofit.dev/v1alpha1",
        "kind": "Hook",
        "metadata": {"name": "sync", "namespace": "shop"},
        "status": {
            "waiting": 37,
            "queues": [
                {"name": "main", "waiting": 0, "blocked": ""},
                {"name": "slow", "waiting": 37, "blocked": "exit 1: no; next attempt at 12:00:24"},
            ],
        },
    }
    found = overview([], policies=[], hooks=[hook])
    (line,) = lines_of(found, Screen(), now=NOW)
    assert line == "Hook shop/sync, queue slow, 37 requests: exit 1: no; next attempt at 12:00:24"
    assert data_of(found)["hooks"][0]["waiting"] == 37
