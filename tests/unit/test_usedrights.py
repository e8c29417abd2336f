"""The rights that an audit log shows as used, and the rights that manifests grant."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.usedrights import (
    FOLDER,
    GRANTED_BY_USERS,
    Decision,
    Right,
    Use,
    granted,
    never_granted,
    never_used,
    used,
)

ACCOUNT = "system:serviceaccount:kyverno:worker"
ROOT = Path(__file__).parents[2]


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
    def test_an_allowed_call_is_a_used_right(self, tmp_path: Path) -> None:
        line = event("get", namespace="a", name="b", subresource="status")
        right = Right("worker", "get", "", "configmaps/status", "a", "b")
        assert used(log(tmp_path, line)) == {Use(right, Decision.ALLOWED)}

    def test_impersonating_an_account_of_another_namespace_is_not_a_used_right(
        self, tmp_path: Path
    ) -> None:
        lines = []
        for name in ("kyverno:other", "shop:bot"):
            made = json.loads(event("get", namespace="a", name="b"))
            made["impersonatedUser"] = {"username": f"system:serviceaccount:{name}"}
            lines.append(json.dumps(made))
        found = {use.right for use in used(log(tmp_path, *lines))}
        assert {right for right in found if right.verb == "impersonate"} == {
            Right("worker", "impersonate", "", "serviceaccounts", "kyverno", "other")
        }
        assert {right.account for right in found} == {"worker", "other"}

    def test_a_refused_call_is_reported_as_refused(self, tmp_path: Path) -> None:
        line = event("get", decision="forbid")
        right = Right("worker", "get", "", "configmaps")
        assert used(log(tmp_path, line)) == {Use(right, Decision.REFUSED)}

    def test_a_call_without_an_authorization_decision_is_not_reported(
        self, tmp_path: Path
    ) -> None:
        item = json.loads(event("get"))
        item["annotations"] = {}
        assert used(log(tmp_path, json.dumps(item))) == set()

    def test_a_right_of_every_caller_is_reported_as_allowed_to_all(self, tmp_path: Path) -> None:
        item = json.loads(event("get"))
        reason = 'RBAC: allowed by ClusterRoleBinding "a" of ClusterRole "b" to Group "system:all"'
        item["annotations"]["authorization.k8s.io/reason"] = reason
        right = Right("worker", "get", "", "configmaps")
        assert used(log(tmp_path, json.dumps(item))) == {Use(right, Decision.ALLOWED_TO_ALL)}

    def test_calls_by_other_users_and_their_impersonations_are_not_reported(
        self, tmp_path: Path
    ) -> None:
        item = json.loads(event("list", user="somebody"))
        item["impersonatedUser"] = {"username": ACCOUNT}
        lines = (event("get", user="somebody"), json.dumps(item))
        assert used(log(tmp_path, *lines)) == set()

    def test_an_impersonated_call_is_a_right_of_both_accounts(self, tmp_path: Path) -> None:
        item = json.loads(event("list", namespace="a"))
        item["impersonatedUser"] = {"username": "system:serviceaccount:kyverno:other"}
        assert {use.right for use in used(log(tmp_path, json.dumps(item)))} == {
            Right("worker", "impersonate", "", "serviceaccounts", "kyverno", "other"),
            Right("other", "list", "", "configmaps", "a"),
        }

    def test_a_create_right_has_a_name_only_if_the_object_is_applied(self, tmp_path: Path) -> None:
        applied = json.loads(event("patch", name="b"))
        applied["responseStatus"] = {"code": 201}
        assert {use.right for use in used(log(tmp_path, event("create", name="a")))} == {
            Right("worker", "create", "", "configmaps")
        }
        assert {use.right for use in used(log(tmp_path, json.dumps(applied)))} == {
            Right("worker", verb, "", "configmaps", "", "b") for verb in ("patch", "create")
        }


class TestGranted:
    def test_a_rule_grants_a_right_for_each_group_and_verb(self, tmp_path: Path) -> None:
        rule = {"apiGroups": ["", "apps"], "resources": ["a"], "verbs": ["get", "list"]}
        folder = manifests(tmp_path, role("r", [rule]), binding("r"))
        assert granted(folder) == {
            Right("worker", verb, group, "a") for verb in ("get", "list") for group in ("", "apps")
        }

    def test_a_role_grants_rights_in_its_namespace_and_for_its_resource_names(
        self, tmp_path: Path
    ) -> None:
        rule = {"apiGroups": [""], "resources": ["a"], "verbs": ["get"], "resourceNames": ["x"]}
        folder = manifests(
            tmp_path,
            role("r", [rule], kind="Role", namespace="kyverno"),
            binding("r", ref="Role", namespace="kyverno"),
        )
        assert granted(folder) == {Right("worker", "get", "", "a", "kyverno", "x")}

    def test_an_aggregating_role_grants_the_rules_of_the_roles_it_selects(
        self, tmp_path: Path
    ) -> None:
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
    use = Use(Right("worker", "get", "", "a", "n", "x"), Decision.ALLOWED)
    assert never_used([right], [use]) == ([] if covers else [right])
    assert never_granted([right], [use]) == ([] if covers else [use])


def test_a_refused_use_needs_a_right_and_uses_none() -> None:
    right = Right("worker", "get", "", "a")
    use = Use(right, Decision.REFUSED)
    assert never_used([right], [use]) == [right]
    assert never_granted([], [use]) == [use]
    # A covered use is refused only if a test had removed the right.
    assert never_granted([right], [use]) == []


def test_a_use_allowed_to_all_uses_a_right_and_needs_none() -> None:
    right = Right("worker", "get", "", "a")
    use = Use(right, Decision.ALLOWED_TO_ALL)
    assert never_used([right], [use]) == []
    assert never_granted([], [use]) == []


@pytest.mark.parametrize(
    ("namespace", "name", "named"),
    [
        ("shop", "labeller", False),
        ("kyverno", "kyverno-background-controller", False),
        ("kyverno", "kyverno-admission-controller", True),
    ],
)
def test_impersonation_is_granted_for_user_accounts_and_the_background_controller(
    namespace: str, name: str, *, named: bool
) -> None:
    asked = ("kube-retrofit-controller", "impersonate", "", "serviceaccounts", namespace, name)
    uses = [Use(Right(*asked), Decision.ALLOWED)]
    assert bool(never_granted(granted(), uses)) is named


def test_most_rights_of_the_controller_account_are_not_left_to_users_to_grant() -> None:
    verbs = ("list", "create", "update", "patch", "impersonate")
    uses = [
        Use(Right("kube-retrofit-controller", verb, "", "secrets", "kyverno"), Decision.ALLOWED)
        for verb in verbs
    ]
    assert len(never_granted([], uses)) == len(verbs)
    assert not any(right.verb == "*" for right in GRANTED_BY_USERS)


RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
TITLE = "the manifests"
CONFTEST = """
from pathlib import Path
import pytest
from tests.usedrights import UsedRights, leave_behind
HERE = Path(__file__).parent
def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: of a control plane")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(UsedRights.of(config, HERE / "manifests"))
@pytest.fixture(scope="session", autouse=True)
def control_plane():
    yield
    leave_behind(HERE / "audit.log")
"""
PASSES = "def test_passes(): pass\n"
SKIPPED = PASSES + (
    "import pytest\n@pytest.mark.cluster\n@pytest.mark.skip\ndef test_skipped(): pass\n"
)


class TestARun:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        (tmp_path / "manifests").mkdir()
        manifests(tmp_path / "manifests", role("r", [RULE]), binding("r"))
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = test_it.py\n")
        (tmp_path / "test_it.py").write_text(PASSES)
        return tmp_path

    def run(self, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
        # Without other plugins, also in workers; only xdist is needed.
        argv = [sys.executable, "-m", "pytest", "-p", "xdist", *words]
        alone = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        env = os.environ | alone | {"PYTHONPATH": str(ROOT)}
        env.pop(FOLDER, None)
        return subprocess.run(
            argv, cwd=project, env=env, text=True, capture_output=True, check=False
        )

    def test_a_run_passes_if_granted_and_used_rights_are_the_same(self, project: Path) -> None:
        log(project, event("get"))
        done = self.run(project, "-n1")
        assert (done.returncode, TITLE in done.stdout) == (0, False), done.stdout

    def test_a_run_fails_if_granted_and_used_rights_differ(self, project: Path) -> None:
        log(project, event("list"), event("get", resource="secrets", decision="forbid"))
        done = self.run(project, "-n1")
        assert done.returncode == 1
        _, asked, unused = done.stdout.split("FAILED: ")
        assert "worker: get secrets (refused)\nworker: list configmaps (allowed)\n" in asked
        assert "worker: get configmaps\n" in unused

    def test_an_unused_right_fails_no_run_in_which_tests_were_skipped(self, project: Path) -> None:
        (project / "test_it.py").write_text(SKIPPED)
        log(project, event("get", decision="forbid"))
        done = self.run(project)
        assert done.returncode == 0
        assert "1 tests were skipped or failed" in done.stdout
        assert "worker: get configmaps\n" in done.stdout

    @pytest.mark.parametrize("words", [("test_it.py",), ("-k", "passes")])
    def test_a_run_of_some_of_the_tests_does_not_compare_rights(
        self, project: Path, words: tuple[str, ...]
    ) -> None:
        log(project, event("list"))
        done = self.run(project, *words)
        assert (done.returncode, TITLE in done.stdout) == (0, False), done.stdout

    def test_a_second_try_of_what_failed_fails_for_rights_that_were_missing(
        self, project: Path
    ) -> None:
        flag = project / "passes-now"
        once = f"import os\ndef test_fails_once(): assert os.path.exists({str(flag)!r})\n"
        (project / "test_it.py").write_text(PASSES + once)
        log(project, event("get"), event("list"))
        assert self.run(project).returncode == 1
        flag.touch()
        again = self.run(project, "--last-failed")
        assert "1 passed" in again.stdout
        assert again.returncode == 1
        assert "worker: list configmaps (allowed)\n" in again.stdout
        log(project, event("get"))
        assert self.run(project).returncode == 0
        flag.unlink()
        assert self.run(project).returncode == 1
        flag.touch()
        assert self.run(project, "--last-failed").returncode == 0
