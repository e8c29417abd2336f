"""`retrofit hooks` with real scripts: their input, and the changes that they request."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit
from tests.linux import linux

pytestmark = linux

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: shop}}
spec: {nodeName: one}
"""
SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: strict}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {value: hunter22}
"""
CONFIG = """
configVersion: v1
onStartup: 10
schedule:
- {name: nightly, crontab: "0 3 * * *", queue: slow, includeSnapshotsFrom: [settings]}
kubernetes:
- {name: pods, kind: pod, executeHookOnEvent: [Added], jqFilter: .metadata.labels}
- {name: settings, kind: cm, executeHookOnEvent: [], executeHookOnSynchronization: false}
"""
Script = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.chdir(tmp_path)
    Path("pod.yaml").write_text(POD)
    Path("settings.yaml").write_text(SETTINGS)

    def write(body: str, *, config: str = CONFIG, name: str = "hooks/hook.sh") -> str:
        path = Path(name)
        path.parent.mkdir(exist_ok=True, parents=True)
        shown = f"if [ \"$1\" = --config ]; then cat <<'END'\n{config}\nEND\nexit; fi"
        path.write_text(f"#!/bin/sh\n{shown}\n{body}\n")
        path.chmod(0o755)
        return name

    return write


def hooks(*words: str) -> Result:
    return CliRunner().invoke(retrofit, ["hooks", *words])


def run(hook: str, *words: str) -> Result:
    return hooks("run", hook, "--yes", *words)


def operation(text: str) -> str:
    return f"cat > $KUBERNETES_PATCH_PATH <<'END'\n{text}\nEND"


def test_the_hooks_of_a_folder_are_listed_with_their_bindings(script: Script) -> None:
    script(":", name="hooks/b/second.sh")
    script(":", config="configVersion: v1\nonStartup: 1", name="hooks/a.sh")
    script(":", config="kubernetes: []", name="hooks/broken.sh")
    pace = "settings: {executionMinInterval: 1s, executionBurst: 1}"
    script(":", config=f"configVersion: v1\n{pace}", name="hooks/c.sh")
    Path("hooks/forgotten.sh").write_text("#!/bin/sh\n")
    done = hooks("list", "hooks", "--yes")
    assert done.exit_code == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["HOOK", "BINDING"],
        ["a.sh", "onStartup"],
        ["b/second.sh", "onStartup"],
        ["b/second.sh", "nightly"],
        ["b/second.sh", "pods"],
        ["b/second.sh", "settings"],
        ["c.sh", "none"],
    ]
    assert "pods       pod: Added          main" in done.stdout
    assert "settings   cm: snapshots only  main" in done.stdout
    assert done.stderr.splitlines() == [
        "hooks/forgotten.sh is skipped: it is not executable; chmod +x makes it a hook",
        (
            "broken.sh: configVersion: is missing, write configVersion: v1;"
            " version 0 of the format is not supported"
        ),
    ]


def test_errors_of_a_configuration_are_reported_with_their_places(script: Script) -> None:
    config = "configVersion: v1\nonStartup: x\nkubernetes: [{kind: Pod, jqFilter: '.a['}]"
    hook = script(":", config=config)
    assert hooks("list", hook, "--yes").stderr.splitlines() == [
        "hook.sh: onStartup: expected a whole number, got a string",
    ]
    hook = script(":", config=config.replace("onStartup: x", ""))
    done = run(hook, "--event", "Added", "-r", "pod.yaml")
    assert done.exit_code == 1
    assert "hook.sh: kubernetes[0].jqFilter: the jq program cannot be compiled" in done.stderr


def test_an_event_shows_contexts_output_and_changes(script: Script) -> None:
    body = operation(
        "operation: MergePatch\nkind: ConfigMap\nnamespace: default\nname: settings\n"
        "mergePatch: {data: {seen: web}}\n---\n"
        "operation: Delete\nkind: Pod\nnamespace: default\nname: web\n---\n"
        "operation: CreateIfNotExists\nobject: {apiVersion: v1, kind: ConfigMap, "
        "metadata: {name: new, namespace: default}, data: {a: b}}\n---\n"
        "operation: JQPatch\nkind: ConfigMap\nnamespace: default\nname: settings\njqFilter: ."
    )
    hook = script(
        f'echo hello; echo oh >&2\n{body}\necho \'{{"name":"n","add":1}}\' > $METRICS_PATH'
    )
    done = run(hook, "--event", "added", "-r", "pod.yaml", "-t", "settings.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    contexts, output, operations, metrics = done.stdout.split("\n\n")
    assert contexts.startswith("# Binding contexts\n- binding: pods\n  type: Event\n")
    assert contexts.endswith("  filterResult:\n    app: shop")
    assert set(output.splitlines()) == {"# Output", "hello", "stderr: oh"}
    assert "MergePatch ConfigMap default/settings\n--- ConfigMap" in operations
    assert "   mode: strict\n+  seen: web\n" in operations
    assert "--- Pod default/web\n+++ /dev/null\n-apiVersion: v1\n" in operations
    assert "--- /dev/null\n+++ ConfigMap default/new\n+apiVersion: v1\n" in operations
    assert operations.endswith("JQPatch ConfigMap default/settings: nothing changes")
    assert metrics == "# Metrics\nadd n 1\n"


def test_a_schedule_has_the_snapshots_of_the_files(script: Script) -> None:
    hook = script('cp "$BINDING_CONTEXT_PATH" context.json')
    done = run(hook, "--event", "Schedule", "-t", "settings.yaml")
    assert done.exit_code == 0
    assert "type: Schedule" in done.stdout
    assert "mode: strict" in done.stdout
    assert "password" not in done.stdout
    assert done.stdout.endswith("# Operations\nnone\n")
    (context,) = json.loads(Path("hooks/context.json").read_text())
    assert context["snapshots"]["settings"][0]["object"]["data"] == {"mode": "strict"}


def test_a_hook_can_be_run_for_startup_and_synchronization(script: Script) -> None:
    hook = script(":")
    assert "- binding: onStartup\n" in run(hook, "--event", "OnStartup").stdout
    shown = run(hook, "--event", "Synchronization", "-r", "pod.yaml").stdout
    assert "  type: Synchronization\n  objects:\n  - object:\n" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--event", "Modified", "-r", "pod.yaml"],
            "Pod default/web: binding 'pods' is for Added",
        ),
        (["--event", "Added", "-r", "settings.yaml"], "binding 'pods' is for pod"),
        (["--event", "Added"], "an event is about an object: name its file with --resource"),
        (
            ["--event", "Added", "-r", "pod.yaml", "--binding", "x"],
            "the hook has no kubernetes binding 'x': name one of pods, settings",
        ),
        (
            ["--event", "Synchronization", "--binding", "settings"],
            "every binding has executeHookOnSynchronization: false",
        ),
    ],
)
def test_an_event_without_a_matching_binding_is_refused(
    script: Script, words: list[str], said: str
) -> None:
    done = run(script("echo ran > ran"), *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not Path("hooks/ran").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo no such secret >&2; exit 3", "hook.sh failed: exit 3: no such secret\n"),
        ("sleep 100", "hook.sh failed: took longer than 0.3 s and was ended\n"),
        (
            operation("operation: Delete\nkind: Pod\nname: a\n---\noperation: Destroy"),
            "hook.sh: operations[1].operation: 'Destroy' is not known, use one of Create",
        ),
        (operation('{"operation": "Create", "object": {'), "hook.sh: operations: "),
        ("echo '{' > $METRICS_PATH", "hook.sh: metrics[0]: is not a complete JSON object"),
        ("sleep 100 &", "hook.sh: it left processes behind, which were ended\n"),
        ("seq 100000", "lines are left out: more than 1,000 in a second\n"),
    ],
)
def test_a_problem_of_a_run_is_reported_in_one_line(script: Script, body: str, said: str) -> None:
    timeout = "0.3" if "0.3" in said else "60"
    done = run(script(body), "--event", "OnStartup", "--timeout", timeout)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.exit_code == (0 if "were" in said or "left out" in said else 1)


def test_an_operation_on_a_missing_object_is_reported_with_a_hint(script: Script) -> None:
    body = operation(
        "operation: MergePatch\nkind: ConfigMap\nnamespace: a\nname: b\nmergePatch: {a: b}"
    )
    done = run(script(body), "--event", "OnStartup")
    assert done.exit_code == 1
    assert "name its file with --target-resource if the cluster has it" in done.stdout


def test_objects_whose_name_a_hook_leaves_to_the_api_server_are_shown(script: Script) -> None:
    meta = "{generateName: job-, namespace: shop}"
    made = f"operation: Create\nobject: {{apiVersion: v1, kind: ConfigMap, metadata: {meta}}}"
    done = run(script(operation(f"{made}\n---\n{made}")), "--event", "onstartup")
    assert (done.exit_code, done.stderr) == (0, "")
    shown = [line for line in done.stdout.splitlines() if line.startswith(("Create", "+++"))]
    assert shown == [
        "Create ConfigMap shop/job-1",
        "+++ ConfigMap shop/job-1",
        "Create ConfigMap shop/job-2",
        "+++ ConfigMap shop/job-2",
    ]


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("{name: x}", "Create ConfigMap x: object.metadata.namespace: is required for ConfigMap"),
        ("{namespace: shop}", "Create ConfigMap shop/: ConfigMap shop/: the name is empty"),
    ],
)
def test_an_operation_without_the_place_of_its_object_is_reported(
    script: Script, meta: str, said: str
) -> None:
    made = f"operation: Create\nobject: {{apiVersion: v1, kind: ConfigMap, metadata: {meta}}}"
    done = run(script(operation(made)), "--event", "onstartup")
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == said


def test_after_a_failure_only_operations_that_ignore_hook_errors_are_shown(script: Script) -> None:
    body = operation(
        "operation: MergePatch\nkind: Pod\nnamespace: default\nname: web\nsubresource: status\n"
        "ignoreHookError: true\nmergePatch: {status: {phase: Failed}}\n---\n"
        "operation: Delete\nkind: Pod\nnamespace: default\nname: web"
    )
    done = run(script(f"{body}\nexit 1"), "--event", "OnStartup", "-t", "pod.yaml")
    assert done.exit_code == 1
    assert "+  phase: Failed" in done.stdout
    assert "Delete" not in done.stdout


def test_data_of_secrets_is_hidden_in_the_output_of_a_hook(script: Script) -> None:
    config = "configVersion: v1\nkubernetes: [{kind: Secret}]"
    hook = script('grep -o hunter22 "$BINDING_CONTEXT_PATH"', config=config)
    words = ["--event", "Added", "-r", "settings.yaml"]
    Path("settings.yaml").write_text(SETTINGS.partition("---")[2])
    assert "hunter22" not in run(hook, *words).output
    assert "hunter22" in run(hook, *words, "--show-secrets").output


def test_no_hook_is_run_without_permission(script: Script) -> None:
    hook = script("touch ran", config="configVersion: v1\nonStartup: 1")
    for words in (["run", hook, "--event", "OnStartup"], ["list", "hooks"]):
        done = hooks(*words)
        assert (done.exit_code, "allow it with --yes" in done.stderr) == (2, True)
    assert not Path("hooks/ran").exists()


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 2), (b"\x04", 2), (b"", 130)])
def test_a_question_that_is_not_answered_with_yes_runs_nothing(
    script: Script, typed: bytes, code: int
) -> None:
    hook = script("touch ran", config="configVersion: v1\nonStartup: 1")
    command = [sys.executable, "-m", "reconciler.cli.main", "hooks", "run", hook]
    near, far = pty.openpty()
    with (
        os.fdopen(near, "wb", 0) as keyboard,
        os.fdopen(far) as terminal,
        subprocess.Popen(
            [*command, "--event", "OnStartup"], stdin=terminal, stderr=subprocess.PIPE
        ) as program,
    ):
        assert program.stderr
        shown = b""
        try:
            while b"[y/N]" not in shown:
                shown += os.read(program.stderr.fileno(), 65536)
            if typed:
                keyboard.write(typed)
            # Ctrl-C reaches a program as a signal, the end of input as a character. Python misses
            # a signal between the question and the read for its answer, until the next one.
            for _ in range(3):
                if not typed:
                    program.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(timeout=20)
                    break
            assert program.poll() == code
        finally:
            program.kill()
        shown += program.stderr.read()
    assert b"Aborted" not in shown
    assert shown.endswith(b"\n")
    assert not Path("hooks/ran").exists()


def test_a_hook_does_not_inherit_access_to_a_cluster(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere/config")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    hook = script("env")
    shown = run(hook, "--event", "OnStartup").stdout
    assert "KUBE" not in shown.replace("KUBERNETES_PATCH_PATH", "")
    assert f"HOME={Path.home()}\n" not in shown
    named = run(hook, "--event", "OnStartup", "--hook-env", "KUBECONFIG").stdout
    assert "KUBECONFIG=/somewhere/config" in named


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hooks/nothing.sh", "there is no such file"),
        ("hooks", "it is a folder; name one hook"),
        ("pod.yaml", "pod.yaml: no Hook found"),
        ("forgotten.sh", "it is not executable; chmod +x makes it a hook"),
    ],
)
def test_a_path_that_is_not_a_hook_is_refused(script: Script, name: str, said: str) -> None:
    script(":")
    Path("forgotten.sh").write_text("#!/bin/sh\n")
    done = run(name, "--event", "OnStartup")
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_the_list_of_executables_names_the_command_for_a_hook_of_a_file(script: Script) -> None:
    script(":")
    Path("hook.yaml").write_text(DECLARED)
    done = hooks("list", "hook.yaml")
    assert (done.exit_code, "chmod" in done.stderr) == (2, False)
    assert "`retrofit hooks run` tries a Hook of a file" in done.stderr


DECLARED = """
apiVersion: kube-retrofit.dev/v1alpha1
kind: Hook
metadata: {name: copy, namespace: default}
spec:
  onStartup: 1
  schedule:
  - {name: nightly, crontab: "0 3 * * *", includeSnapshotsFrom: [settings]}
  kubernetes:
  - {name: settings, kind: ConfigMap, jqFilter: .data}
  run:
    foreach: contexts[].object || contexts[].snapshots.settings[].object
    operations:
    - operation: CreateOrUpdate
      object:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "{{ element.metadata.name }}-copy"}
        data: "{{ element.data }}"
---
apiVersion: kube-retrofit.dev/v1alpha1
kind: ClusterHook
metadata: {name: forget}
spec:
  kubernetes: [{kind: ConfigMap, executeHookOnEvent: [Deleted]}]
  run:
    jq: '.contexts[].object.metadata | {operation: "Delete", kind: "ConfigMap", namespace, name}'
"""
ELSEWHERE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: elsewhere}
"""


@pytest.fixture
def declared(script: Script) -> str:
    del script
    Path("hooks.yaml").write_text(DECLARED)
    Path("elsewhere.yaml").write_text(ELSEWHERE)
    return "hooks.yaml"


def play(declared: str, event: str, *words: str) -> Result:
    return hooks("run", declared, "--event", event, *words)


def test_a_declared_hook_runs_without_permission(declared: str) -> None:
    done = play(declared, "Added", "--hook", "copy", "-r", "settings.yaml", "-t", "pod.yaml")
    assert done.exit_code == 0, done.stderr
    contexts, _, operations = done.stdout.partition("# Operations\n")
    (context,) = yaml.safe_load(contexts)
    assert context["filterResult"] == {"mode": "strict"}
    assert operations.startswith("CreateOrUpdate ConfigMap default/settings-copy\n")
    assert "+  mode: strict\n" in operations
    assert "# Output" not in done.stdout


def test_a_declared_hook_has_snapshots_when_its_schedule_is_due(declared: str) -> None:
    done = play(declared, "Schedule", "--hook", "copy", "-t", "settings.yaml")
    assert "CreateOrUpdate ConfigMap default/settings-copy\n" in done.stdout
    done = play(declared, "OnStartup", "--hook", "copy")
    assert yaml.safe_load(done.stdout.partition("\n# Operations")[0]) == [{"binding": "onStartup"}]
    assert "# Operations\nnone\n" in done.stdout


def test_a_declared_hook_selects_objects_only_in_its_own_namespace(declared: str) -> None:
    done = play(declared, "Added", "--hook", "copy", "-r", "elsewhere.yaml")
    assert done.exit_code == 2
    assert "binding 'settings' does not select it" in done.stderr


def test_a_cluster_hook_with_a_jq_program_runs_for_any_namespace(declared: str) -> None:
    done = play(declared, "Deleted", "--hook", "forget", "-r", "elsewhere.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Delete ConfigMap elsewhere/settings: nothing changes\n" in done.stdout


def test_one_of_several_hooks_in_a_file_must_be_selected(declared: str) -> None:
    done = play(declared, "OnStartup")
    assert done.exit_code == 2
    assert "hooks.yaml: holds default/copy, forget: name one with --hook" in done.stderr


def test_a_jq_error_in_a_declared_hook_is_reported_with_its_place(declared: str) -> None:
    Path(declared).write_text(DECLARED.replace("jqFilter: .data", "jqFilter: .data |"))
    done = play(declared, "Added", "--hook", "copy", "-r", "settings.yaml")
    assert done.exit_code == 1
    said = "Hook default/copy: spec.kubernetes[0].jqFilter: the jq program cannot be compiled"
    assert said in done.stderr


def test_all_errors_in_a_declared_hook_are_reported_with_their_places(declared: str) -> None:
    wrong = DECLARED.replace("operation: CreateOrUpdate", "operation: Make").replace(
        "[Dele", "[Fo"
    )
    Path(declared).write_text(wrong.replace("onStartup: 1", "onstartup: 1"))
    done = play(declared, "Added", "--hook", "copy", "-r", "settings.yaml")
    assert done.exit_code == 1
    assert "hooks.yaml: spec.onstartup: unknown field" in done.stderr
    assert "hooks.yaml: spec.run.operations[0].operation: 'Make' is not known" in done.stderr
