"""Loading tests: supported fields, refused fields, and the configuration that applies."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.conformance.chainsaw import documents, loader

HEAD = "apiVersion: chainsaw.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))


def put_test(folder: Path, spec: str) -> None:
    put(folder / loader.TEST_FILE, HEAD + dedent(spec))


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("1m30s", 90), ("250ms", 0.25), ("1h", 3600), ("1.5s", 1.5)]
)
def test_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert loader.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5s later", "1m 30s", "-1s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(loader.LoadError, match="not a duration"):
        loader.parse_duration(text)


def test_steps_operations_and_timeouts_are_loaded(tmp_path: Path) -> None:
    put_test(
        tmp_path,
        """\
        spec:
          timeouts: {delete: 2m}
          namespace: here
          steps:
            - name: first
              try:
                - apply: {file: a.yaml, timeout: 3s}
                - description: why
                  error: {resource: {kind: X}}
              catch: [{sleep: {duration: 1s}}]
              finally: [{script: {content: "true"}}]
              cleanup: [{command: {entrypoint: kubectl, args: [get]}}]
        """,
    )
    test = loader.load(tmp_path, tmp_path)
    step = test.steps[0]
    assert [operation.action for operation in step.do] == ["apply", "error"]
    assert [operation.timeout for operation in step.do] == [3.0, None]
    assert step.do[0].place == "first try[0] apply a.yaml"
    phases = (step.catch, step.finally_, step.cleanup)
    assert [phase[0].action for phase in phases] == ["sleep", "script", "command"]
    assert (test.namespace, test.configuration.timeouts.delete) == ("here", 120.0)


def test_the_nearest_configuration_up_the_tree_applies(tmp_path: Path) -> None:
    for folder in ("group/deep/a", "b"):
        put_test(tmp_path / folder, "spec: {steps: []}")
    put(
        tmp_path / "group" / loader.CONFIGURATION_FILE,
        """\
        spec:
          cleanup: {delayBeforeCleanup: 3s}
          execution: {forceTerminationGracePeriod: 5s}
          namespace: {fastDelete: true}
          timeouts: {assert: 1m30s}
        """,
    )
    near = loader.load(tmp_path / "group/deep/a", tmp_path).configuration
    assert (near.delay_before_cleanup, near.grace, near.fast_delete) == (3.0, 5, True)
    assert (near.timeouts.assert_, near.timeouts.apply) == (90.0, 5.0)
    far = loader.load(tmp_path / "b", tmp_path).configuration
    assert (far.grace, far.fast_delete, far.timeouts.assert_) == (1, False, 30.0)


def test_a_configuration_above_the_root_is_ignored(tmp_path: Path) -> None:
    put(tmp_path / loader.CONFIGURATION_FILE, "spec: {timeouts: {assert: 1s}}")
    put_test(tmp_path / "root/a", "spec: {steps: []}")
    test = loader.load(tmp_path / "root/a", tmp_path / "root")
    assert test.configuration.timeouts.assert_ == 30.0


def test_template_is_inlined_with_its_bindings(tmp_path: Path) -> None:
    put(
        tmp_path / "_step-templates/make.yaml",
        "kind: StepTemplate\nspec: {try: [{create: {file: ($file)}}]}\n",
    )
    put_test(
        tmp_path / "a",
        """\
        spec:
          steps:
            - name: make it
              use:
                template: ../_step-templates/make.yaml
                with: {bindings: [{name: file, value: x.yaml}]}
        """,
    )
    step = loader.load(tmp_path / "a", tmp_path).steps[0]
    assert (step.name, step.bindings) == ("make it", (("file", "x.yaml"),))
    assert step.do[0].arguments == {"file": "($file)"}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{steps: [], skip: true}", "spec: this runner does not know skip"),
        ("{steps: [{name: s, skip: true}]}", "step s: this runner does not know skip"),
        ("{steps: [{try: [{podLogs: {}}]}]}", r"try\[0\]: expected one of"),
        ("{steps: [{try: [{apply: {}, create: {}}]}]}", r"try\[0\]: expected one of"),
        ("{steps: [{try: [{apply: {dryRun: true}}]}]}", "apply: this runner does not know dryRun"),
        ("{steps: [{use: {template: none.yaml}}]}", "there is no template none.yaml"),
        ("{steps: [], timeouts: {foo: 1s}}", "timeouts: this runner does not know foo"),
    ],
)
def test_unknown_fields_operations_and_templates_are_refused(
    tmp_path: Path, spec: str, complaint: str
) -> None:
    put_test(tmp_path, f"spec: {spec}\n")
    with pytest.raises(loader.LoadError, match=complaint):
        loader.load(tmp_path, tmp_path)


def test_discovery_finds_hidden_folders_in_order(tmp_path: Path) -> None:
    for folder in ("b", "a/.chainsaw-test", "a"):
        put_test(tmp_path / folder, "spec: {steps: []}")
    assert loader.discover(tmp_path) == [
        tmp_path / "a",
        tmp_path / "a/.chainsaw-test",
        tmp_path / "b",
    ]


def test_documents_contain_only_json_values_and_lists_are_flattened(tmp_path: Path) -> None:
    text = "---\n---\na: 2020-01-02\n1: x\n---\nkind: List\nitems: [{b: 1}, {c: 2}]\n"
    put(tmp_path / "x.yaml", text)
    assert documents.read(tmp_path / "x.yaml") == [
        {"a": "2020-01-02", "1": "x"},
        {"b": 1},
        {"c": 2},
    ]
