"""Which rights were used, by an audit log, and which are granted, by manifests."""

import json
from pathlib import Path

import pytest
import yaml

from tests.usedrights import Right, granted, never_used, used

ACCOUNT = "system:serviceaccount:kyverno:worker"


def event(verb: str, *, user: str = ACCOUNT, decision: str = "allow", **ref: str) -> str:
    found = {
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": "configmaps", **ref},
        "annotations": {"authorization.k8s.io/decision": decision},
    }
    return json.dumps(found)


def log(folder: Path, *lines: str) -> Path:
    file = folder / "audit.log"
    file.write_text("\n".join(lines))
    return file


def manifests(folder: Path, *documents: object) -> Path:
    (folder / "rbac.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def role(name: str, rules: list[object], kind: str = "ClusterRole", **meta: object) -> object:
    return {"kind": kind, "metadata": {"name": name, **meta}, "rules": rules}


def binding(name: str, ref: str = "ClusterRole", **meta: object) -> object:
    kind = "RoleBinding" if meta else "ClusterRoleBinding"
    subject = {"kind": "ServiceAccount", "name": "worker", "namespace": "kyverno"}
    return {
        "kind": kind,
        "metadata": {"name": name, **meta},
        "roleRef": {"kind": ref, "name": name},
        "subjects": [subject],
    }


class TestUsed:
    def test_what_an_account_was_allowed_to_do(self, tmp_path: Path) -> None:
        line = event("get", namespace="a", name="b", subresource="status")
        assert used(log(tmp_path, line)) == {
            Right("worker", "get", "", "configmaps/status", "a", "b")
        }

    def test_not_what_it_was_refused_or_others_did(self, tmp_path: Path) -> None:
        lines = (event("get", decision="forbid"), event("get", user="somebody"))
        assert used(log(tmp_path, *lines)) == set()

    def test_under_the_name_of_another_account(self, tmp_path: Path) -> None:
        item = json.loads(event("list", namespace="a"))
        item["impersonatedUser"] = {"username": "system:serviceaccount:kyverno:other"}
        assert used(log(tmp_path, json.dumps(item))) == {
            Right("worker", "impersonate", "", "serviceaccounts", "kyverno", "other"),
            Right("other", "list", "", "configmaps", "a"),
        }


class TestGranted:
    def test_a_rule_is_a_right_for_each_of_its_words(self, tmp_path: Path) -> None:
        rule = {"apiGroups": ["", "apps"], "resources": ["a"], "verbs": ["get", "list"]}
        folder = manifests(tmp_path, role("r", [rule]), binding("r"))
        assert granted(folder) == {
            Right("worker", verb, group, "a") for verb in ("get", "list") for group in ("", "apps")
        }

    def test_in_a_namespace_and_by_name(self, tmp_path: Path) -> None:
        rule = {"apiGroups": [""], "resources": ["a"], "verbs": ["get"], "resourceNames": ["x"]}
        folder = manifests(
            tmp_path,
            role("r", [rule], kind="Role", namespace="kyverno"),
            binding("r", ref="Role", namespace="kyverno"),
        )
        assert granted(folder) == {Right("worker", "get", "", "a", "kyverno", "x")}

    def test_what_a_role_collects_by_labels(self, tmp_path: Path) -> None:
        rule = {"apiGroups": [""], "resources": ["a"], "verbs": ["get"]}
        collecting = {
            "kind": "ClusterRole",
            "metadata": {"name": "r"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]},
        }
        part = role("part", [rule], labels={"x": "y"})
        folder = manifests(tmp_path, collecting, part, role("no", [rule]), binding("r"))
        assert granted(folder) == {Right("worker", "get", "", "a")}


@pytest.mark.parametrize(
    ("right", "covers"),
    [
        (Right("worker", "get", "", "a"), True),
        (Right("worker", "get", "", "a", "n"), True),
        (Right("worker", "get", "", "a", "n", "x"), True),
        (Right("worker", "get", "", "a", "n", "y"), False),
        (Right("worker", "get", "", "a", "m"), False),
        (Right("worker", "list", "", "a"), False),
        (Right("worker", "get", "apps", "a"), False),
        (Right("other", "get", "", "a"), False),
    ],
)
def test_a_right_is_used_by_what_it_covers(right: Right, *, covers: bool) -> None:
    assert never_used([right], [Right("worker", "get", "", "a", "n", "x")]) == (
        [] if covers else [right]
    )
