"""Holds the rights of the manifests against those that are used: by the audit logs of all suites.

Each control plane of a run leaves behind what our programs asked the API server for. When every
test was run, the run fails if the manifests grant a right that nobody used, or if a program asked
for what they do not grant, be it that something else allowed it or that it was refused.

What a test tries in the name of an account does not count, only what comes with its token. `make
e2e` and `make e2e-node` are runs of their own and nothing of them is seen here.
"""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
import yaml
from typing_extensions import override

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane, Options

ACCOUNT = "system:serviceaccount:kyverno:"
FOLDER = "RETROFIT_TEST_RIGHTS"
"""Where the processes of a run leave what was used."""
MANIFESTS = Path(__file__).parents[1] / "manifests"
BASE = MANIFESTS / "base"
FOLDERS = (BASE, *sorted(MANIFESTS.glob("dialects/*")), MANIFESTS / "components/ui")
"""What grants rights to programs, that of parts which a cluster need not have included."""
_DECISION = "authorization.k8s.io/decision"
_REASON = "authorization.k8s.io/reason"
_CREATED = 201
_ANY = "*"
_ASKED_BY_POLICIES = frozenset({"record", "process"})
"""Verbs of no request: admission policies ask about them, which no log shows."""
_CONFORMANCE = "tests/conformance/"
"""Many of its cases are left out in every run, and those that run use only what others use too."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        account: A ServiceAccount of namespace kyverno.
        group: ``*`` for any, and so the resource.
        resource: With its subresource.
        namespace: Where it is granted or used; empty for all, and for what has no namespace.
        name: Empty for any.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, used: "Right") -> bool:
        """Return whether a use needs no other right than this."""
        return (
            (self.account, self.verb) == (used.account, used.verb)
            and self.group in (_ANY, used.group)
            and self.resource in (_ANY, used.resource)
            and self.namespace in ("", used.namespace)
            and self.name in ("", used.name)
        )

    @override
    def __str__(self) -> str:
        """Return it as one would ask for it."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {resource}{name}{where}"


GRANTED_BY_USERS = (
    # What a policy reads and changes: by the cluster's role `view`, and by roles with the label of
    # this account. They differ by cluster, so no run shows which of their rights are needed.
    *(
        Right("kyverno-background-controller", verb, _ANY, _ANY)
        for verb in ("get", "list", "watch", "create", "update", "patch")
    ),
    # By `view`, and by roles with the label of this one: single old and deleted objects, and what
    # the GlobalContextEntries keep that a rule names before an object is stored.
    Right("kyverno-admission-controller", "get", _ANY, _ANY),
    Right("kyverno-admission-controller", "list", _ANY, _ANY),
    Right("kyverno-admission-controller", "watch", _ANY, _ANY),
    # What an older version recorded there, where docs/reference/rbac.md has somebody grant it.
    Right("kube-retrofit-controller", "get", "", "secrets", "kyverno"),
    Right("kube-retrofit-controller", "delete", "", "secrets", "kyverno"),
)
"""What programs ask for that is not the base's to grant."""


def granted_by_users(right: Right) -> bool:
    """Return whether something is not the base's to grant."""
    if right.verb == "impersonate":
        # The accounts that policies name; those of the programs are named by no policy.
        return right.namespace != "kyverno"
    return any(item.covers(right) for item in GRANTED_BY_USERS)


class Decision(StrEnum):
    """What the API server said to a use of a right."""

    ALLOWED = "allowed"
    ALLOWED_TO_ALL = "allowed to all"
    """By the cluster's own roles for everybody who has logged in."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A right that a program asked for."""

    right: Right
    decision: Decision


def used(audit_log: Path) -> set[Use]:
    """Return what our programs asked for, by the log of one API server."""
    found: set[Use] = set()
    for line in audit_log.read_bytes().splitlines():
        if ACCOUNT.encode() not in line:
            continue
        event = orjson.loads(line)
        annotations = event.get("annotations") or {}
        # Without a decision nobody asked the authorizer: the token was refused, or to impersonate.
        if event["user"]["username"].startswith(ACCOUNT) and _DECISION in annotations:
            decision = _decision(annotations)
            found.update(Use(right, decision) for right in _asked(event))
    return found


def _decision(annotations: Any) -> Decision:
    if annotations[_DECISION] != "allow":
        return Decision.REFUSED
    to_all = 'to Group "system:' in annotations.get(_REASON, "")
    return Decision.ALLOWED_TO_ALL if to_all else Decision.ALLOWED


def _asked(event: Any) -> Iterator[Right]:
    ref, user = event.get("objectRef") or {}, event["user"]["username"]
    acting = (event.get("impersonatedUser") or {}).get("username", user)
    # In the name of another namespace's account only who owns that namespace lets us work.
    if acting != user and acting.startswith(ACCOUNT):
        namespace, _, name = acting.removeprefix("system:serviceaccount:").partition(":")
        account = user.removeprefix(ACCOUNT)
        yield Right(account, "impersonate", "", "serviceaccounts", namespace, name)
    if not acting.startswith(ACCOUNT) or not ref:
        return
    subresource = ref.get("subresource", "")
    right = Right(
        account=acting.removeprefix(ACCOUNT),
        verb=event["verb"],
        group=ref.get("apiGroup", ""),
        resource=ref["resource"] + (f"/{subresource}" if subresource else ""),
        namespace=ref.get("namespace", ""),
        # No rule can ask for the name of what is created by a POST.
        name="" if event["verb"] == "create" else ref.get("name", ""),
    )
    yield right
    if right.verb == "patch" and (event.get("responseStatus") or {}).get("code") == _CREATED:
        yield replace(right, verb="create")


def granted(*folders: Path) -> set[Right]:
    """Return what the manifests of some folders grant, but for the cluster's own roles."""
    documents = [
        document
        for folder in folders or FOLDERS
        for file in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document
    ]
    roles = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in documents
        if item["kind"] in ("Role", "ClusterRole")
    }
    found: set[Right] = set()
    for binding in documents:
        if binding.get("kind") not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        ref = binding["roleRef"]
        place = namespace if ref["kind"] == "Role" else ""
        role = roles.get((ref["kind"], place, ref["name"]))
        if role is None:
            continue
        for subject in binding.get("subjects") or ():
            if subject["kind"] == "ServiceAccount":
                found.update(_rights(subject["name"], namespace, _rules(role, roles.values())))
    return found


def _rules(role: Any, roles: Iterable[Any]) -> list[Any]:
    rules = list(role.get("rules") or ())
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        wanted = selector["matchLabels"].items()
        for other in roles:
            labels = other["metadata"].get("labels") or {}
            if other is not role and other["kind"] == "ClusterRole" and wanted <= labels.items():
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


def _rights(account: str, namespace: str, rules: Iterable[Any]) -> Iterator[Right]:
    for rule in rules:
        for group in rule.get("apiGroups") or ():
            for resource in rule["resources"]:
                for verb in sorted(set(rule["verbs"]) - _ASKED_BY_POLICIES):
                    for name in rule.get("resourceNames") or ("",):
                        yield Right(account, verb, group, resource, namespace, name)


def never_used(rights: Iterable[Right], uses: Iterable[Use]) -> list[Right]:
    """Return the rights that cover nothing of what was allowed."""
    allowed = {use.right for use in uses if use.decision is not Decision.REFUSED}
    return sorted(right for right in rights if not any(map(right.covers, allowed)))


def never_granted(rights: Iterable[Right], uses: Iterable[Use]) -> list[Use]:
    """Return what was asked for and is covered by none of the rights.

    What is granted and was refused all the same is no such thing: a test had taken it away.
    """
    known = tuple(rights)
    return sorted(
        use
        for use in uses
        if use.decision is not Decision.ALLOWED_TO_ALL
        and not granted_by_users(use.right)
        and not any(right.covers(use.right) for right in known)
    )


def leave_behind(audit_log: Path | None) -> None:
    """Note for the end of the run what a control plane's log says, while it is still there."""
    folder = os.environ.get(FOLDER)
    if not folder or audit_log is None or not audit_log.exists():
        return
    lines = [[use.decision, *astuple(use.right)] for use in used(audit_log)]
    (Path(folder) / f"{uuid.uuid4().hex}.json").write_bytes(orjson.dumps(lines))


def _left_behind(folder: Path) -> set[Use]:
    return {
        Use(Right(*right), Decision(decision))
        for file in folder.glob("*.json")
        for decision, *right in orjson.loads(file.read_bytes())
    }


@contextlib.contextmanager
def audited(binaries: Binaries) -> Iterator[ControlPlane]:
    """Give a control plane of which the run learns what our accounts did there."""
    with ControlPlane.start(Options(binaries=binaries, audit_log=True)) as plane:
        yield plane
        leave_behind(plane.audit_log)


@dataclass(slots=True, eq=False)
class UsedRights:
    """A pytest plugin for the process that leads a run.

    Attributes:
        whole: Every test of the project is run.
        manifests: What grants the rights.
    """

    whole: bool
    manifests: Sequence[Path] = FOLDERS
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="retrofit-rights-")
    )
    _not_run: set[str] = field(default_factory=set)
    _unused: list[Right] = field(default_factory=list)
    _ungranted: list[Use] = field(default_factory=list)

    @classmethod
    def of(cls, config: pytest.Config, *manifests: Path) -> Self:
        """Return it for a run, and let the processes of the run know where to leave notes."""
        choices = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
        part = any(config.getoption(name, default=None) for name in choices)
        whole = config.args_source is config.ArgsSource.TESTPATHS and not part
        plugin = cls(whole=whole, manifests=manifests or FOLDERS)
        os.environ[FOLDER] = plugin.folder.name
        return plugin

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests did not come to their end on a control plane."""
        passed = report.passed or hasattr(report, "wasxfail")
        counts = "cluster" in report.keywords and not report.nodeid.startswith(_CONFORMANCE)
        if counts and not passed:
            self._not_run.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take in what all processes left behind, and fail the run by it."""
        uses = _left_behind(Path(self.folder.name))
        self.folder.cleanup()
        if not self.whole or not uses:
            return
        rights = granted(*self.manifests)
        self._unused, self._ungranted = never_used(rights, uses), never_granted(rights, uses)
        wrong = self._ungranted or (self._unused and not self._not_run)
        if wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the rights."""
        if self._ungranted:
            _tell(
                terminalreporter,
                "FAILED: what programs asked for and the manifests do not grant",
                (f"{use.right} ({use.decision})" for use in self._ungranted),
            )
        if self._unused and self._not_run:
            title = "rights that the manifests grant and nobody used, perhaps for want of tests"
            why = f"{len(self._not_run)} tests were skipped or failed, so this fails nothing"
            _tell(terminalreporter, title, (why, *map(str, self._unused)))
        elif self._unused:
            title = "FAILED: rights that the manifests grant and nobody used"
            _tell(terminalreporter, title, map(str, self._unused))


def _tell(reporter: pytest.TerminalReporter, title: str, lines: Iterable[str]) -> None:
    reporter.section(title)
    for line in lines:
        reporter.write_line(line)
