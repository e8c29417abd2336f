"""`retrofit explain` on a cluster, with the stored policy, trigger and targets."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from devcluster.cluster import Cluster
from reconciler.cli.main import retrofit

pytestmark = pytest.mark.cluster

PASSWORD = "correct horse battery"
Explain = Callable[..., Result]


def policy(namespace: str) -> dict[str, Any]:
    calls = f"/api/v1/namespaces/{namespace}"
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": "reload", "namespace": namespace},
        "spec": {
            "rules": [
                {
                    "name": "stamp",
                    "match": {
                        "any": [
                            {
                                "resources": {
                                    "kinds": ["ConfigMap"],
                                    "namespaceSelector": {"matchLabels": {"team": "x"}},
                                }
                            }
                        ]
                    },
                    "context": [
                        {"name": "extra", "configMap": {"name": "extra", "namespace": namespace}},
                        {
                            "name": "size",
                            "apiCall": {
                                "urlPath": f"{calls}/secrets/key",
                                "jmesPath": "length(data.password)",
                            },
                        },
                    ],
                    "mutate": {
                        "targets": [
                            {
                                "apiVersion": "v1",
                                "kind": "Secret",
                                "namespace": namespace,
                                "selector": {"matchLabels": {"uses": "settings"}},
                            }
                        ],
                        "patchStrategicMerge": {
                            "metadata": {
                                "annotations": {
                                    "mode": "{{ request.object.data.mode }}",
                                    "extra": "{{ extra.data.k }}",
                                    "size": "{{ size }}",
                                }
                            },
                            "stringData": {"copy": "{{ target.data.password }}"},
                        },
                    },
                }
            ]
        },
    }


def secret(namespace: str, name: str, *, uses: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"uses": uses}}
    content = {"password": PASSWORD + name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": content}


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@pytest.fixture
def explain(
    installed_cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Explain:
    made = [
        policy(namespace),
        config_map(namespace, "settings", mode="strict"),
        config_map(namespace, "extra", k="v"),
        secret(namespace, "key", uses="nothing"),
        secret(namespace, "one", uses="settings"),
        secret(namespace, "two", uses="settings"),
    ]
    text = yaml.safe_dump_all(made)
    installed_cluster.kubectl("apply", "-f", "-", stdin=text)
    installed_cluster.kubectl("label", "namespace", namespace, "team=x")
    monkeypatch.setenv("KUBECONFIG", str(installed_cluster.kubeconfig))

    def run(*words: str) -> Result:
        done = CliRunner().invoke(retrofit, ["explain", *words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        for name in ("key", "one", "two"):
            plain = PASSWORD + name
            for hidden in (plain, base64.b64encode(plain.encode()).decode()):
                assert hidden not in done.output
        return done

    return run


def lines(done: Result) -> list[str]:
    assert done.exit_code == 0, done.output
    return [line.strip() for line in done.stdout.splitlines()]


def test_explain_reads_policy_trigger_and_targets_from_the_cluster(
    explain: Explain, namespace: str
) -> None:
    words = [f"{namespace}/reload", "--cluster", "--trigger", f"configmap/{namespace}/settings"]
    output = lines(explain(*words))
    assert output[:5] == [
        f"Policy {namespace}/reload",
        "rule stamp (spec.rules[0])",
        "operation UPDATE (the rule listens to every operation)",
        "yes   match.any[0]",
        "yes   match and exclude: the rule concerns this request",
    ]
    assert "context[1] size = ***" in output
    assert '{{ extra.data.k }} = "v"' in output
    assert f"yes   Secret {namespace}/one is selected" in output
    assert f"yes   Secret {namespace}/two is selected" in output
    assert "open  the diff is not shown: the patch contains data of a Secret" in output


def test_explain_shows_named_targets_and_why_another_is_not_selected(
    explain: Explain, namespace: str
) -> None:
    words = [f"{namespace}/reload", "--cluster", "--trigger", f"cm/{namespace}/settings"]
    words += ["--target", f"Secret/{namespace}/two", "--target", f"secrets/{namespace}/key"]
    output = lines(explain(*words))
    assert f"yes   Secret {namespace}/two is selected" in output
    assert f"yes   Secret {namespace}/one is selected" not in output
    assert "1 more object is selected, but not named with --target" in output
    reason = "its labels are not uses=settings"
    assert f"no    Secret {namespace}/key: {reason}" in output


def test_explain_reads_the_policy_and_the_trigger_from_files(
    explain: Explain, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy(namespace)))
    (tmp_path / "cm.yaml").write_text(yaml.safe_dump(config_map(namespace, "new", mode="soft")))
    words = [str(tmp_path / "policy.yaml"), "--trigger", str(tmp_path / "cm.yaml"), "--cluster"]
    found = json.loads(explain(*words, "-o", "json").stdout)
    text = json.dumps(found)
    assert '"value": "soft"' in text
    assert f"Secret {namespace}/one is selected" in text


def test_explain_accepts_the_same_policy_names_as_preview(
    explain: Explain, namespace: str
) -> None:
    assert lines(explain(f"policy/{namespace}/reload", "--cluster")) == lines(
        explain(f"{namespace}/reload", "--cluster")
    )


def test_explain_applies_the_exceptions_of_the_cluster(
    explain: Explain, installed_cluster: Cluster, namespace: str
) -> None:
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "one", "namespace": namespace},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["Secret"], "names": ["one"]}}]},
            "exceptions": [{"policyName": f"{namespace}/reload", "ruleNames": ["*"]}],
        },
    }
    installed_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(exception))
    words = [f"{namespace}/reload", "--cluster", "--trigger", f"cm/{namespace}/settings"]
    done = explain(*words)
    assert lines(done).count("no    an exception is made for this target") == 1
    assert f"PolicyException {namespace}/one" in done.stderr
    elsewhere = explain(*words, "--exception-namespace", "other-*")
    assert "an exception is made" not in elsewhere.stdout
    assert elsewhere.stderr == ""


def test_without_a_trigger_the_rules_of_the_cluster_are_outlined(
    explain: Explain, namespace: str
) -> None:
    output = lines(explain(f"{namespace}/reload", "--cluster"))
    assert "may be fired by v1/ConfigMap" in output or "may be fired by ConfigMap" in output


def test_rights_that_are_missing_are_named(explain: Explain, namespace: str) -> None:
    words = [f"{namespace}/reload", "--as", "somebody"]
    done = explain(*words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert f"get policies.kyverno.io in namespace {namespace}" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent", "--cluster"], "absent: there is no such file, and no such ClusterPolicy"),
        (["absent.yaml", "--cluster"], "absent.yaml: there is no such file"),
        (["NS/reload", "--cluster", "--trigger", "gadget/NS/x"], "serves no kind gadget"),
        (["NS/reload", "--cluster", "--trigger", "cm/x"], "ConfigMap is namespaced"),
        (["NS/reload", "--cluster", "--trigger", "node/NS/x"], "Node is cluster-scoped"),
        (["NS/reload", "--cluster", "--trigger", "cm/NS/absent"], '"absent" not found'),
        (["NS/reload", "--cluster", "--trigger", "ing/NS/absent"], '"absent" not found'),
        (["NS/reload", "--cluster", "--trigger", "cpol/absent"], '"absent" not found'),
        (
            ["NS/reload", "--cluster", "--trigger", "event/NS/x"],
            "event is ambiguous: write one of",
        ),
        (["NS/reload", "--cluster", "--trigger", "x"], "an object is named KIND/NS/NAME"),
    ],
)
def test_an_unusable_argument_is_an_error_of_one_line(
    explain: Explain, namespace: str, words: list[str], message: str
) -> None:
    done = explain(*(word.replace("NS", namespace) for word in words))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def labelling(kind: str, **resources: Any) -> dict[str, Any]:
    """Return a policy that labels its own trigger."""
    target = {"apiVersion": "v1", "kind": kind, "name": "{{ request.object.metadata.name }}"}
    patch = {"metadata": {"labels": {"seen": "yes"}}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "labelling"},
        "spec": {
            "rules": [
                {
                    "name": "r",
                    "match": {"any": [{"resources": {"kinds": [kind], **resources}}]},
                    "mutate": {"targets": [target], "patchStrategicMerge": patch},
                }
            ]
        },
    }


def test_triggers_that_the_shipped_settings_filter_fire_no_rule(
    explain: Explain, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(labelling("Namespace")))
    output = explain(str(path), "--cluster", "--trigger", "ns/kube-system").output
    assert "the rule does not fire: filtered by resourceFilters [*/*,kube-system,*]" in output
    assert "the rule fires" in explain(str(path), "--cluster", "--trigger", "ns/default").output
    path.write_text(yaml.safe_dump(labelling("Node")))
    text = "nothing ever fires it: resourceFilters leave out Node ([Node,*,*])"
    assert text in explain(str(path), "--cluster").output
    # Without --cluster there are no settings that could filter triggers.
    assert "resourceFilters" not in explain(str(path)).output
