"""The runner on an in-memory cluster: checks can fail, and no created object is left behind."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chainsaw.cluster import Object, Ref
from tests.conformance.chainsaw.memory import MemoryCluster
from tests.conformance.chainsaw.model import Configuration, Operation, Step, Test, Timeouts
from tests.conformance.chainsaw.operations import Failure, bind, judge
from tests.conformance.chainsaw.runner import judge_outcome, run, wait_command
from tests.conformance.chainsaw.shell import Outcome, Shell

SHORT = Timeouts(apply=0.1, assert_=0.1, error=0.1, delete=0.1, cleanup=0.1, exec=5.0)


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def do(action: str, resource: Object | None = None, **arguments: Any) -> Operation:
    given = arguments if resource is None else {"resource": resource, **arguments}
    return Operation(action=action, arguments=given, timeout=None, place=f"s {action}")


def a_test(folder: Path, *operations: Operation, **parts: Any) -> Test:
    return Test(
        folder=folder,
        configuration=Configuration(timeouts=SHORT),
        steps=(Step(name="s", do=operations, **parts),),
        namespace="ns",
    )


def ref(name: str) -> Ref:
    return Ref(api_version="v1", kind="ConfigMap", namespace="ns", name=name)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def shell() -> Shell:
    return Shell(environment={"FROM_SHELL": "yes"})


def kept(cluster: MemoryCluster) -> None:
    """Store an object that no test created."""
    old = config_map("old", a="1")
    old["metadata"] |= {"namespace": "ns", "resourceVersion": "0"}
    cluster.objects[ref("old")] = old


async def test_apply_creates_or_merges_and_clean_up_deletes_created_objects(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    kept(cluster)
    await run(
        a_test(
            tmp_path,
            do("apply", config_map("new", a="1")),
            do("create", config_map("other")),
            do("apply", config_map("old", b="2")),
            do("assert", config_map("old", a="1", b="2")),
        ),
        cluster,
        shell,
    )
    assert cluster.log == [
        "create v1/Namespace ns",
        "create v1/ConfigMap ns/new",
        "create v1/ConfigMap ns/other",
        "merge v1/ConfigMap ns/old",
        "delete v1/ConfigMap ns/other",
        "delete v1/ConfigMap ns/new",
        "delete v1/Namespace ns",
    ]
    assert cluster.objects[ref("old")]["data"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        (do("assert", config_map("old", a="2")), "data.a: expected '2', found '1'"),
        (do("assert", config_map("absent")), "there is no v1/ConfigMap ns/absent"),
        (do("error", config_map("old", a="1")), "ns/old is as it must not be"),
        (do("error", config_map("old")), "ns/old is as it must not be"),
        (do("create", config_map("old")), "exists already"),
        (do("patch", config_map("absent")), "does not exist"),
        (do("update", config_map("absent")), "does not exist"),
        (do("apply", file="absent.yaml"), "absent.yaml: No such file"),
        (do("apply", config_map("($nobody)")), "no binding"),
        (do("script", content="echo out; echo err >&2; exit 3"), "exit status 3\nstdout: out"),
        (do("command", entrypoint="no-such-program"), "No such file"),
        (do("wait", apiVersion="v1", kind="Pod", **{"for": {"moon": {}}}), "moon"),
    ],
)
async def test_a_failed_operation_is_reported_and_cleaned_up(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path, operation: Operation, complaint: str
) -> None:
    kept(cluster)
    with pytest.raises(Failure, match=complaint) as caught:
        await run(a_test(tmp_path, operation), cluster, shell)
    assert str(caught.value).startswith(operation.place)
    assert set(cluster.objects) == {ref("old")}


async def test_error_and_assert_check_every_candidate(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    unnamed = config_map("x", a="2")
    unnamed["metadata"] = {"labels": {"app": "shop"}}
    for name, value in (("one", "1"), ("two", "2")):
        stored = config_map(name, a=value)
        stored["metadata"] |= {"namespace": "ns", "labels": {"app": "shop"}}
        cluster.objects[ref(name)] = stored
    await run(a_test(tmp_path, do("assert", unnamed)), cluster, shell)
    with pytest.raises(Failure, match="ns/two is as it must not be"):
        await run(a_test(tmp_path, do("error", unnamed)), cluster, shell)
    unnamed["data"] = {"a": "3"}
    await run(a_test(tmp_path, do("error", unnamed)), cluster, shell)
    with pytest.raises(Failure, match=r"(?s)ns/one differs.*ns/two differs"):
        await run(a_test(tmp_path, do("assert", unnamed)), cluster, shell)


async def test_rejection_can_be_expected(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    rejected = {"expect": [{"check": {"($error != null)": True}}]}
    operation = do("apply", config_map("bad"), **rejected)
    cluster.refuse = lambda item: "no bad ones" if item["metadata"]["name"] == "bad" else None
    await run(a_test(tmp_path, operation), cluster, shell)
    cluster.refuse = lambda _: None
    with pytest.raises(Failure, match="ended with success"):
        await run(a_test(tmp_path, operation), cluster, shell)
    assert cluster.objects == {}


def test_an_expectation_applies_only_to_matching_objects() -> None:
    other = [{"match": {"kind": "Secret"}, "check": {"($error != null)": True}}]
    assert judge(other, "refused", config_map("x"), {}) == "refused"
    assert judge(other, None, config_map("x"), {}) is None
    assert judge(other, "refused", {"kind": "Secret"}, {}) is None


async def test_a_refused_apply_is_retried(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    answers = iter([None, "not yet", "not yet", None])
    cluster.refuse = lambda _: next(answers)
    await run(a_test(tmp_path, do("apply", config_map("x"))), cluster, shell)
    assert cluster.log.count("create v1/ConfigMap ns/x") == 3


async def test_delete_by_labels_waits_until_gone(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    kept(cluster)
    cluster.objects[ref("old")]["metadata"]["labels"] = {"a": "b"}
    what = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "labels": {"a": "b"}}
    await run(a_test(tmp_path, do("delete", ref=what)), cluster, shell)
    assert ref("old") not in cluster.objects
    kept(cluster)
    cluster.stuck = frozenset({"old"})
    what = {"apiVersion": "v1", "kind": "ConfigMap", "name": "old"}
    with pytest.raises(Failure, match=r"ns/old is still there, finalizers \[\]"):
        await run(a_test(tmp_path, do("delete", ref=what)), cluster, shell)


async def test_a_failure_is_described_before_the_clean_up(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    steps = (do("create", config_map("x")), do("error", config_map("x")))
    with pytest.raises(Failure, match="there are 2 objects"):
        await run(
            a_test(tmp_path, *steps),
            cluster,
            shell,
            lambda: f"there are {len(cluster.objects)} objects",
        )
    assert cluster.objects == {}


async def test_an_object_that_cannot_be_cleaned_up_is_a_failure(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    cluster.stuck = frozenset({"x"})
    with pytest.raises(Failure, match="clean-up of v1/ConfigMap ns/x: not within"):
        await run(a_test(tmp_path, do("create", config_map("x"))), cluster, shell)


async def test_phases_run_in_their_order(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    def note(word: str, code: int = 0) -> Operation:
        return do("script", content=f"echo {word} >> log; exit {code}")

    phases = {"catch": (note("catch"),), "finally_": (note("finally"),)}
    cleanup = (note("cleanup"),)
    await run(a_test(tmp_path, note("try"), **phases, cleanup=cleanup), cluster, shell)
    with pytest.raises(Failure, match="exit status 1"):
        await run(
            a_test(tmp_path, note("try", 1), note("never"), **phases, cleanup=cleanup),
            cluster,
            shell,
        )
    words = (tmp_path / "log").read_text().split()
    assert words == ["try", "finally", "cleanup", "try", "catch", "finally", "cleanup"]


async def test_scripts_get_folder_namespace_and_environment(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")
    env = [{"name": "MORE", "value": "($namespace)-more"}, {"name": "NAME", "value": "($name)"}]
    check = {"(trim_space($stdout))": "x.yaml ns yes ($namespace)-more x", "($error)": None}
    content = 'echo "$(ls) $NAMESPACE $FROM_SHELL $MORE $NAME"'
    await run(
        a_test(
            tmp_path,
            do("apply", file="($name).yaml".replace("($name)", "x")),
            do("script", content=content, env=env, check=check),
            bindings=(("name", "x"),),
        ),
        cluster,
        shell,
    )


async def test_a_process_that_does_not_end_is_killed_with_its_children(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    operation = Operation(
        action="script",
        arguments={"content": "sleep 60 & wait; echo no"},
        timeout=0.2,
        place="s script",
    )
    with pytest.raises(Failure, match=r"killed after 0\.2 s"):
        await run(a_test(tmp_path, operation), cluster, shell)


@pytest.mark.parametrize(
    ("action", "arguments", "said"),
    [
        ("script", {"content": "sleep 60"}, r"^s: killed after 0 s"),
        ("command", {"entrypoint": "sleep", "args": ["60"]}, r"^s: killed after 0 s"),
        (
            "wait",
            {"kind": "Pod", "apiVersion": "v1", "for": {"deletion": {}}},
            r"^s: exit status 1\nstdout: wait pod\.v1\. .* --timeout=0s\n",
        ),
    ],
    ids=["script", "command", "wait"],
)
async def test_a_timeout_of_0_is_not_replaced_by_the_default(
    cluster: MemoryCluster, tmp_path: Path, action: str, arguments: dict[str, Any], said: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@"; exit 1\n')
    kubectl.chmod(0o755)
    shell = Shell(environment={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    operation = Operation(action=action, arguments=arguments, timeout=0.0, place="s")
    with pytest.raises(Failure, match=said):
        await run(a_test(tmp_path, operation), cluster, shell)


def test_a_check_overrides_the_exit_status() -> None:
    outcome = Outcome(stdout="", stderr=" gone \n", error="exit status 1")
    assert judge_outcome(outcome, {"(trim_space($stderr))": "gone"}, {}) is None
    complaint = judge_outcome(outcome, {"(trim_space($stderr))": "here"}, {})
    assert complaint is not None
    assert "expected 'here', found 'gone'" in complaint


def test_bindings_build_on_each_other() -> None:
    entries = (("a", "($test.metadata.name)"), ("b", "(join('-', [$a, $namespace]))"))
    outer = {"test": {"metadata": {"name": "t"}}, "namespace": "ns"}
    assert bind(entries, outer)["b"] == "t-ns"


async def test_pods_get_a_short_grace_period_and_templating_can_be_disabled(
    cluster: MemoryCluster, shell: Shell, tmp_path: Path
) -> None:
    seen: list[Object] = []
    cluster.refuse = seen.append
    meta = {"name": "w"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}}
    inner = {"spec": {"template": {"spec": {"x": "(1"}}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, **inner}
    job: Object = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, **job}
    literal = do("create", config_map("y", a="($nobody)"), template=False)
    writes = (do("create", item) for item in (pod, deployment, cron))
    await run(a_test(tmp_path, *writes, literal), cluster, shell)
    grace = {"terminationGracePeriodSeconds": 1}
    assert seen[1]["spec"] == grace
    assert seen[2]["spec"] == {"template": {"spec": {"x": "(1", **grace}}}
    assert seen[3]["spec"] == {"jobTemplate": {"spec": {"template": {"spec": grace}}}}
    assert seen[4]["data"] == {"a": "($nobody)"}


@pytest.mark.parametrize(
    ("arguments", "rest"),
    [
        (
            {"kind": "Pod", "apiVersion": "v1", "for": {"condition": {"name": "Ready"}}},
            ["pod.v1.", "--all", "--namespace=ns", "--for=condition=Ready"],
        ),
        (
            {
                "kind": "Deployment",
                "apiVersion": "apps/v1",
                "name": "x",
                "namespace": "other",
                "for": {"deletion": {}},
            },
            ["deployment.v1.apps", "x", "--namespace=other", "--for=delete"],
        ),
        (
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "selector": "a=b",
                "for": {"jsonPath": {"path": "{.status.phase}", "value": "Running"}},
            },
            [
                "pod.v1.",
                "--selector",
                "a=b",
                "--namespace=ns",
                "--for=jsonpath={.status.phase}=Running",
            ],
        ),
    ],
)
def test_wait_runs_kubectl_wait(arguments: dict[str, Any], rest: list[str]) -> None:
    assert wait_command(arguments, "ns", 9) == ["kubectl", "wait", *rest, "--timeout=9s"]
