"""`retrofit migrate`: what it rewrites, what it reports, and what it leaves unchanged."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit

POLICY = """\
# Déjà vu: a head that stays
apiVersion: "kyverno.io/v1"   # the group
kind: ClusterPolicy
metadata:
  name: reload
  annotations: {policies.kyverno.io/title: Reload, kube-retrofit.dev/run: "1"}
spec:
  rules:
    - name: settings
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets: [{apiVersion: v1, kind: Secret, name: s, namespace: shop}]
        patchStrategicMerge: {metadata: {labels: {seen: "yes"}}}
    - name: label
      match: {any: [{resources: {kinds: [Pod]}}]}
      mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
"""
VALIDATE = "{name: v, match: {any: [{resources: {kinds: [Pod]}}]}, validate: {message: m}}"
MUTATE = (
    "{name: m, match: {any: [{resources: {kinds: [Pod]}}]},"
    " mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}}"
)
ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %s
  labels:
    %s
rules:
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get]
"""
LABEL = 'rbac.kyverno.io/aggregate-to-background-controller: "true"   # ours'
OWN_LABELS = (
    "{app.kubernetes.io/component: background-controller, app.kubernetes.io/instance: kyverno,"
    " app.kubernetes.io/part-of: kyverno}"
)


def policy(*rules: str, kind: str = "ClusterPolicy", name: str = "p") -> str:
    listed = ", ".join(rules)
    head = f"apiVersion: kyverno.io/v1, kind: {kind}, metadata: {{name: {name}}}"
    return f"{{{head}, spec: {{rules: [{listed}]}}}}\n"


def run(*arguments: str | Path, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(retrofit, ["migrate", *map(str, arguments)], input=text)


def moved(text: str, *arguments: str) -> str:
    """Return the migrated text."""
    result = run("-", *arguments, text=text)
    assert result.exit_code in {0, 1}, result.output
    return result.stdout


class TestTexts:
    def test_only_the_api_group_of_a_policy_changes(self):
        assert moved(POLICY) == POLICY.replace('"kyverno.io/v1"', '"kube-retrofit.dev/v1"')

    def test_a_policy_is_migrated_back_to_its_original_text(self):
        assert moved(moved(POLICY), "--to", "kyverno.io") == POLICY

    @pytest.mark.parametrize(
        ("api_version", "kind", "becomes"),
        [
            ("kyverno.io/v2beta1", "ClusterPolicy", "kube-retrofit.dev/v1"),
            ("kyverno.io/v2", "PolicyException", "kube-retrofit.dev/v1"),
            ("kyverno.io/v2alpha1", "GlobalContextEntry", "kube-retrofit.dev/v1"),
            ("kyverno.io/v2", "UpdateRequest", "kube-retrofit.dev/v1"),
            ("kyverno.io/v2", "CleanupPolicy", "kyverno.io/v2"),
            ("policies.kyverno.io/v1", "MutatingPolicy", "policies.kyverno.io/v1"),
            ("cli.kyverno.io/v1alpha1", "Test", "cli.kyverno.io/v1alpha1"),
        ],
    )
    def test_each_kind_gets_its_version(self, api_version, kind, becomes):
        text = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n"
        head = "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {name: b}\n---\n"
        assert moved(head + text).endswith(text.replace(api_version, becomes))

    def test_a_request_moves_to_the_namespace_of_the_installation(self):
        text = (
            "apiVersion: kyverno.io/v2\nkind: UpdateRequest\n"
            "metadata: {name: a, namespace: kyverno}\n"
            "spec:\n  policyRef: {apiVersion: kyverno.io/v1, kind: Policy, name: p}\n"
        )
        found = moved(text)
        assert "namespace: kube-retrofit}" in found
        assert "policyRef: {apiVersion: kube-retrofit.dev/v1, kind: Policy" in found
        assert moved(found, "--to", "kyverno.io") == text

    def test_policies_in_lists_and_in_tests_of_other_tools_are_migrated(self):
        text = (
            "apiVersion: v1\nkind: List\nitems:\n"
            "- apiVersion: kyverno.io/v1\n  kind: Policy\n  metadata: {name: a}\n"
            "---\nspec: {try: [{assert: {resource: {apiVersion: kyverno.io/v1, kind: Policy}}}]}\n"
        )
        assert moved(text) == text.replace("kyverno.io/v1", "kube-retrofit.dev/v1")

    def test_json_anchors_carriage_returns_and_byte_order_marks_are_kept(self):
        for text in (
            '{"apiVersion": "kyverno.io/v1", "kind": "Policy", "metadata": {"name": "ä"}}',
            "apiVersion: &group kyverno.io/v1\r\nkind: Policy\r\nmetadata: {name: *group}\r\n",
            "\ufeffapiVersion: kyverno.io/v1\nkind: Policy\n",
        ):
            found = run("-", text=text.encode()).stdout_bytes.decode()
            assert found == text.replace("kyverno.io/v1", "kube-retrofit.dev/v1")


class TestRoles:
    def test_the_aggregation_label_and_name_of_a_role_are_migrated(self):
        found = moved(ROLE % ("kyverno:deploys", LABEL))
        label = LABEL.replace("rbac.kyverno.io", "rbac.kube-retrofit.dev")
        assert found == ROLE % ("kube-retrofit-beside:deploys", label)
        assert moved(found, "--to", "kyverno.io") == ROLE % ("kyverno:deploys", LABEL)

    def test_the_three_labels_of_the_background_controller_are_migrated(self):
        text = (ROLE % ("r", "x: y")).replace("\n    x: y", f" {OWN_LABELS}")
        assert moved(text) == text.replace("kyverno", "kube-retrofit")

    def test_a_role_that_keeps_its_name_gives_a_warning(self):
        assert "keeps its name" in run("-", text=ROLE % ("deploys", LABEL)).stderr

    def test_rights_of_a_role_on_the_api_group_are_migrated(self):
        text = (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules:\n"
            "- apiGroups: [kyverno.io]\n  resources: [policies, updaterequests/status]\n"
        )
        found = moved(text)
        assert "apiGroups: [kube-retrofit.dev]" in found
        assert "[retrofitpolicies, retrofitupdaterequests/status]" in found
        assert moved(found, "--to", "kyverno.io") == text

    def test_a_role_with_several_groups_in_a_rule_is_left_to_its_author(self):
        text = (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules:\n"
            "- {apiGroups: [kyverno.io, apps], resources: ['*'], verbs: [get]}\n"
        )
        result = run("-", text=text)
        assert result.exit_code == 1
        assert "rules[0].apiGroups: divide it" in result.stderr
        assert result.stdout == text

    def test_an_unrelated_role_is_unchanged(self):
        text = (ROLE % ("kyverno:other", "a: b")) + "---\n" + POLICY
        assert (ROLE % ("kyverno:other", "a: b")) in moved(text)

    def test_a_binding_of_the_controller_account_is_migrated(self):
        text = (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n"
            "metadata: {name: kyverno:more}\n"
            "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\n"
            "subjects:\n"
            "- {kind: ServiceAccount, name: kyverno-background-controller, namespace: kyverno}\n"
            "- {kind: ServiceAccount, name: robot, namespace: kyverno}\n"
        )
        found = moved(text)
        assert "name: kube-retrofit-background, namespace: kube-retrofit}" in found
        assert "name: robot, namespace: kyverno}" in found
        assert moved(found, "--to", "kyverno.io") == text

    def test_the_settings_config_map_is_migrated(self):
        text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kyverno, namespace: kyverno}\n"
        assert "{name: kube-retrofit, namespace: kube-retrofit}" in moved(text)
        other = text.replace("name: kyverno,", "name: other,")
        assert run("-", text=other).exit_code == 2


class TestWhatMayMove:
    def test_a_policy_without_mutate_rules_stays_with_kyverno(self):
        result = run("-", text=policy(VALIDATE) + "---\n" + POLICY)
        assert result.exit_code == 0
        assert "ClusterPolicy p stays" in result.stderr
        assert result.stdout.startswith(policy(VALIDATE))

    def test_a_policy_with_mutate_and_other_rules_is_left_to_its_author(self):
        result = run("-", text=policy(VALIDATE, MUTATE))
        assert result.exit_code == 1
        assert "spec.rules[0]: only mutate rules move" in result.stderr
        assert result.stdout == policy(VALIDATE, MUTATE)

    def test_every_rule_is_migrated_back_to_kyverno(self):
        text = policy(VALIDATE, MUTATE).replace("kyverno.io/v1", "kube-retrofit.dev/v1")
        assert moved(text, "--to", "kyverno.io") == policy(VALIDATE, MUTATE)

    def test_a_policy_that_would_be_refused_is_reported_with_its_place(self):
        bad = MUTATE.replace("mutate: {", "mutate: {targets: [{kind: Pod}], ")
        result = run("-", text=policy(bad))
        assert result.exit_code == 1
        assert "rule m: is refused: spec.rules[0].mutate.targets[0]" in result.stderr


class TestWhatIsSaid:
    def test_differences_are_reported_for_each_rule(self):
        said = run("-", text=POLICY).stderr
        assert "rule settings: works as ServiceAccount kube-retrofit/kube-retrofit-back" in said
        assert "rbac.kube-retrofit.dev/aggregate-to-background-controller" in said
        account = "kyverno/kyverno-background-controller"
        assert f"rule settings: will be triggered by the writes of {account}" in said
        assert "rule label: changes objects before Kyverno's own rules do" in said

    def test_standard_input_is_printed_and_needs_no_flag_to_be_written(self):
        assert run("-", text=POLICY).stderr.endswith("\n1 object to move\n")

    def test_annotations_that_kyverno_ignores_are_reported(self):
        said = run("-", "--to", "kyverno.io", text=moved(POLICY)).stderr
        assert "Kyverno ignores kube-retrofit.dev/run" in said

    def test_accounts_of_the_kyverno_namespace_in_match_are_reported(self):
        text = policy(
            MUTATE.replace(
                "match: {any: [{",
                "match: {any: [{subjects: [{kind: User, name:"
                " 'system:serviceaccount:kyverno:x'}], ",
            )
        )
        assert "names an account of namespace kyverno" in run("-", text=text).stderr


class TestFiles:
    def test_without_a_flag_nothing_is_written_and_a_diff_is_shown(self, tmp_path: Path):
        file = tmp_path / "p.yaml"
        file.write_text(POLICY)
        result = run(tmp_path)
        assert result.exit_code == 0
        assert file.read_text() == POLICY
        assert '+apiVersion: "kube-retrofit.dev/v1"' in result.stdout
        assert "nothing is written: give --write or -o DIR" in result.stderr

    def test_write_replaces_the_file_in_place(self, tmp_path: Path):
        (tmp_path / "p.yaml").write_text(POLICY)
        assert run(tmp_path / "p.yaml", "--write").exit_code == 0
        assert (tmp_path / "p.yaml").read_text() == moved(POLICY)

    def test_a_migrated_test_folder_still_passes(self, tmp_path: Path):
        source, copy = tmp_path / "source", tmp_path / "copy"
        (source / "below").mkdir(parents=True)
        (source / "below/policy.yaml").write_text(policy(MUTATE))
        pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: shop%s}\n"
        (source / "pod.yaml").write_text(pod % "")
        (source / "after.yaml").write_text(pod % ", labels: {a: b}")
        (source / "kyverno-test.yaml").write_text(
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
            "policies: [below/policy.yaml]\nresources: [pod.yaml]\nresults:\n"
            "- {policy: p, rule: m, kind: Pod, resources: [shop/x], result: pass,"
            " patchedResources: after.yaml}\n"
        )
        assert run(source, "-o", copy).exit_code == 0
        assert "kube-retrofit.dev/v1" in (copy / "below/policy.yaml").read_text()
        assert (source / "below/policy.yaml").read_text() == policy(MUTATE)
        tested = CliRunner().invoke(retrofit, ["test", str(copy)])
        assert tested.exit_code == 0, tested.output

    def test_two_files_with_the_same_name_do_not_overwrite_each_other(self, tmp_path: Path):
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "p.yaml").write_text(POLICY)
        result = run(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
        assert result.exit_code == 2
        assert "would be written there; move one of them alone" in result.stderr

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"a: [", "is not YAML"),
            (b"kind: \xff\n", "is not"),
            (b"a: {{ x }}\n", "is not YAML"),
            (b"{\n", "is not"),
            (b"kind: Pod\n", "found nothing of kyverno.io, and no role for its programs"),
            (b"", "found nothing of kyverno.io, and no role for its programs"),
        ],
    )
    def test_a_file_that_cannot_be_migrated_is_reported_in_one_line(
        self, tmp_path: Path, content: bytes, said: str
    ):
        (tmp_path / "p.yaml").write_bytes(content)
        result = run(tmp_path / "p.yaml")
        assert result.exit_code == 2
        assert said in result.stderr.splitlines()[-1]
        assert "Traceback" not in result.output

    def test_an_unreadable_file_does_not_stop_the_migration_of_others(self, tmp_path: Path):
        (tmp_path / "a.yaml").write_text("a: [")
        (tmp_path / "b.yaml").write_text(POLICY)
        assert run(tmp_path, "--write").exit_code == 2
        assert (tmp_path / "b.yaml").read_text() == moved(POLICY)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("-", "a.yaml"),
            ("-", "--write"),
            ("https://a.example/p.yaml",),
            (".", "--write", "-o", "x"),
        ],
    )
    def test_invalid_arguments_exit_with_2(self, arguments):
        assert run(*arguments).exit_code == 2


BINDING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: &kyverno kyverno}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: kyverno-background-controller, namespace: *kyverno}]
"""


def test_an_anchor_of_a_replaced_value_keeps_its_name() -> None:
    done = run("-", text=BINDING)
    assert done.exit_code == 0, done.output
    assert "namespace: &kyverno kube-retrofit}" in done.stdout
    assert "namespace: *kyverno}" in done.stdout


@pytest.mark.parametrize("anchor", ["", "&v "])
def test_a_value_that_is_written_with_escapes_is_replaced(anchor: str) -> None:
    written = f"- {policy(MUTATE)}".replace("kyverno.io/v1", f'{anchor}"kyverno.io\\/v1"')
    done = run("-", text=written)
    assert done.exit_code == 0, done.output
    assert f'apiVersion: {anchor}"kube-retrofit.dev/v1"' in done.stdout


def test_a_value_that_an_object_that_stays_shares_is_refused() -> None:
    moves, stays = policy(MUTATE, name="a"), policy(VALIDATE, name="b")
    text = f"- {moves.replace('kyverno.io', '&v kyverno.io')}- {stays}"
    shared = text.replace("apiVersion: kyverno.io/v1", "apiVersion: *v")
    done = run("-", text=shared)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert (
        "[1]: ClusterPolicy b stays, but shares an anchor with an object that moves" in done.stderr
    )
