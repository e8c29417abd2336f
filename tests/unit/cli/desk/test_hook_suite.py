"""`retrofit test` with hooks: states of a cluster and the expected results of each."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit

HOOK = """#!/bin/sh
if [ "$1" = --config ]; then cat <<'END'
configVersion: v1
kubernetes:
- {name: pods, kind: Pod, executeHookOnSynchronization: false, keepFullObjectsInMemory: false,
   jqFilter: .metadata.name}
schedule:
- {name: nightly, crontab: "0 3 * * *", includeSnapshotsFrom: [pods]}
END
exit; fi
name=$(jq -r '.[0].filterResult // empty' "$BINDING_CONTEXT_PATH")
[ "$name" != bad ] || { echo "no bad pods" >&2; exit 3; }
cat > "$KUBERNETES_PATCH_PATH" <<END
operation: CreateOrUpdate
object: {apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: default},
  data: {name: "$name"}}
END
"""
TEST = """
apiVersion: kube-retrofit.dev/v1alpha1
kind: HookTest
metadata: {name: pods}
hook: hook.sh
steps:
- name: start
  clusterState: []
  expect: {contexts: []}
- name: a pod comes
  clusterState: [web.yaml]
  expect:
    contexts: [{binding: pods, type: Event, watchEvent: Added, filterResult: web}]
    operations:
    - operation: CreateOrUpdate
      object:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: last, namespace: default}
        data: {name: web}
    objects: [last.yaml]
- clusterState: [web.yaml, bad.yaml]
  expect: {failure: "exit 3: no bad pods"}
- schedule: 0 3 * * *
  expect:
    contexts:
    - {binding: nightly, type: Schedule,
       snapshots: {pods: [{filterResult: bad}, {filterResult: web}]}}
"""
LAST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: last}
data: {name: web}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hook.sh").write_text(HOOK)
    Path("hook.sh").chmod(0o755)
    for name in ("web", "bad"):
        pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        Path(f"{name}.yaml").write_text(pod)
    Path("last.yaml").write_text(LAST)
    Path("hook-test.yaml").write_text(TEST)


def run(*words: str) -> Result:
    return CliRunner().invoke(retrofit, ["test", ".", *words])


def test_every_step_is_tested() -> None:
    done = run("--run-hooks")
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines() if "hook.sh/" in line] == [
        ["Pass", "hook.sh/start/contexts"],
        ["Pass", "hook.sh/a"],
        ["Pass", "hook.sh/a"],
        ["Pass", "hook.sh/a"],
        ["Pass", "hook.sh/step"],
        ["Pass", "hook.sh/step"],
    ]
    assert done.stdout.startswith("pods (hook-test.yaml)\n")


def test_no_executable_is_run_without_permission() -> None:
    done = run()
    assert done.exit_code == 2
    assert done.stdout.count("executables are run only with --run-hooks") == 6


def test_rows_can_be_selected() -> None:
    done = run("--run-hooks", "-t", "rule=*/failure")
    assert (done.exit_code, done.stdout.count("hook.sh/")) == (0, 1)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "filterResult: web}]",
            "filterResult: x}]",
            "-  filterResult: x\n      +  filterResult: web",
        ),
        ("data: {name: web}", "data: {name: x}", "-      name: x\n      +      name: web"),
        ("objects: [last.yaml]", "objects: [bad.yaml]", "Not found: there is no Pod default/bad"),
        ("exit 3: no bad", "exit 4", "Want a failure: exit 3: no bad pods"),
        (
            'failure: "exit 3: no bad pods"',
            "operations: []",
            "The hook failed: exit 3: no bad pods",
        ),
    ],
)
def test_a_result_that_differs_from_the_expectation_fails(
    before: str, after: str, said: str
) -> None:
    assert before in TEST
    Path("hook-test.yaml").write_text(TEST.replace(before, after))
    done = run("--run-hooks")
    assert done.exit_code == 1
    assert said in done.stdout


def test_an_invalid_configuration_of_the_hook_fails_every_row() -> None:
    Path("hook.sh").write_text("#!/bin/sh\necho 'configVersion: v2'\n")
    done = run("--run-hooks")
    assert done.exit_code == 1
    assert done.stdout.count("Invalid configuration: configVersion: 'v2' is not known") == 6


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("steps:", "step:", "did you mean steps?"),
        ("hook: hook.sh", "hook: gone.sh", "gone.sh: there is no such file"),
        (
            "- schedule: 0 3 * * *\n",
            "- name: x\n",
            "expected clusterState or schedule, found neither",
        ),
        ("expect: {contexts: []}", "expect: {}", "expected at least one of contexts, operations"),
        ("clusterState: [web.yaml]", "clusterState: [no.yaml]", "no.yaml: there is no such file"),
        ("v1alpha1", "v1", "expected apiVersion kube-retrofit.dev/v1alpha1 with kind HookTest"),
    ],
)
def test_a_broken_test_is_reported_with_the_cause(before: str, after: str, said: str) -> None:
    assert before in TEST
    Path("hook-test.yaml").write_text(TEST.replace(before, after))
    done = run("--run-hooks")
    assert done.exit_code == 1
    assert said in done.stdout


DECLARED = """
apiVersion: kube-retrofit.dev/v1alpha1
kind: Hook
metadata: {name: names, namespace: default}
spec:
  kubernetes:
  - {name: pods, kind: Pod, executeHookOnSynchronization: false, jqFilter: .metadata.name}
  run:
    foreach: contexts[?watchEvent=='Added']
    operations:
    - operation: Create
      object:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "{{ element.filterResult }}"}
"""
OF_DECLARED = """
apiVersion: kube-retrofit.dev/v1alpha1
kind: HookTest
metadata: {name: names}
hook: names.yaml
steps:
- clusterState: []
  expect: {contexts: []}
- clusterState: [web.yaml]
  expect:
    operations:
    - {operation: Create, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web}}}
    objects: [made.yaml]
- clusterState: [web.yaml, bad.yaml, taken.yaml]
  expect: {failure: already exists}
"""


def test_a_declared_hook_is_tested_without_permission() -> None:
    Path("names.yaml").write_text(DECLARED)
    for file, name in (("made", "web"), ("taken", "bad")):
        head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "
        Path(f"{file}.yaml").write_text(f"{head}{name}}}\n")
    Path("hook-test.yaml").write_text(OF_DECLARED)
    done = run()
    assert (done.exit_code, "4 passed, 0 failed" in done.output) == (0, True), done.output
    Path("names.yaml").write_text(DECLARED.replace("Create", "Make"))
    done = run()
    assert done.exit_code == 1
    assert "spec.run.operations[0].operation: 'Make' is not known" in done.output
