"""Compares the rights that the manifests grant with those used in the tests' audit logs.

Each control plane of a run records which rights our programs used. If every test was run, the run
fails if the manifests grant a right that no program used, or if a program used a right that they
do not grant, whether something else allowed the call or it was refused. A second try of the tests
that failed in such a run fails for that reason too.

Only calls with an account's own token count, not those in which a test impersonates the account.
`make e2e` and `make e2e-node` are separate runs, and this module does not see them.
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
_FOUND = "retrofit/ungranted"
"""The key of what the last whole run found, for a run of the tests that failed in it."""
FOLDER = "RETROFIT_TEST_RIGHTS"
"""The environment variable with the folder in which a run's processes record used rights."""
MANIFESTS = Path(__file__).parents[1] / "manifests"
BASE = MANIFESTS / "base"
FOLDERS = (BASE, *sorted(MANIFESTS.glob("dialects/*")), MANIFESTS / "components/ui")
"""The folders whose manifests grant rights to programs, including those of optional parts."""
_DECISION = "authorization.k8s.io/decision"
_REASON = "authorization.k8s.io/reason"
_CREATED = 201
_ANY = "*"
_ASKED_BY_POLICIES = frozenset({"record", "process"})
"""Verbs of no API call: only admission policies check them, which the audit log does not show."""
_CONFORMANCE = "tests/conformance/"
"""Many of these cases are skipped in every run; the others use only rights of other tests too."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        account: The name of a ServiceAccount in namespace kyverno.
        group: The API group; ``*`` for any.
        resource: The plural, with its subresource; ``*`` for any.
        namespace: Where it is granted or used; empty for all, and for cluster-scoped resources.
        name: The name of the object; empty for any.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, used: "Right") -> bool:
        """Return whether this right is sufficient for the used one."""
        return (
            (self.account, self.verb) == (used.account, used.verb)
            and self.group in (_ANY, used.group)
            and self.resource in (_ANY, used.resource)
            and self.namespace in ("", used.namespace)
            and self.name in ("", used.name)
        )

    @override
    def __str__(self) -> str:
        """Return the right as ``ACCOUNT: VERB RESOURCE NAME in namespace NAMESPACE``."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {resource}{name}{where}"


GRANTED_BY_USERS = (
    # The objects that policies read and change, granted by the cluster's role `view` and by roles
    # with the label of this account. They differ by cluster, so no run can show which are needed.
    *(
        Right("kyverno-background-controller", verb, _ANY, _ANY)
        for verb in ("get", "list", "watch", "create", "update", "patch")
    ),
    # Granted by `view` and by roles with this account's label: single old and deleted objects, and
    # the data of GlobalContextEntries that a rule uses before an object is stored.
    Right("kyverno-admission-controller", "get", _ANY, _ANY),
    Right("kyverno-admission-controller", "list", _ANY, _ANY),
    Right("kyverno-admission-controller", "watch", _ANY, _ANY),
    # Secrets that an older version recorded there; docs/reference/rbac.md says how to grant this.
    Right("kube-retrofit-controller", "get", "", "secrets", "kyverno"),
    Right("kube-retrofit-controller", "delete", "", "secrets", "kyverno"),
)
"""Rights that programs use and that users grant, not the base."""


def granted_by_users(right: Right) -> bool:
    """Return whether a right is one that users grant, not the base."""
    if right.verb == "impersonate":
        # Policies name accounts of any namespace but kyverno, which has the programs' accounts.
        return right.namespace != "kyverno"
    return any(item.covers(right) for item in GRANTED_BY_USERS)


class Decision(StrEnum):
    """The API server's decision about the use of a right."""

    ALLOWED = "allowed"
    ALLOWED_TO_ALL = "allowed to all"
    """Allowed by the cluster's default roles for all authenticated users."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A right that a program needed for a call, and the decision."""

    right: Right
    decision: Decision


def used(audit_log: Path) -> set[Use]:
    """Return the rights that our programs used, from the audit log of one API server."""
    found: set[Use] = set()
    for line in audit_log.read_bytes().splitlines():
        if ACCOUNT.encode() not in line:
            continue
        event = orjson.loads(line)
        annotations = event.get("annotations") or {}
        # Without a decision the authorizer was not called: the token or impersonation was refused.
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
    # The owner of another namespace grants the right to impersonate that namespace's accounts.
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
        # RBAC cannot restrict a POST by the name of the object.
        name="" if event["verb"] == "create" else ref.get("name", ""),
    )
    yield right
    if right.verb == "patch" and (event.get("responseStatus") or {}).get("code") == _CREATED:
        yield replace(right, verb="create")


def granted(*folders: Path) -> set[Right]:
    """Return the rights that the manifests of folders grant, without the cluster's own roles."""
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
    """Return the rights that cover none of the allowed uses."""
    allowed = {use.right for use in uses if use.decision is not Decision.REFUSED}
    return sorted(right for right in rights if not any(map(right.covers, allowed)))


def never_granted(rights: Iterable[Right], uses: Iterable[Use]) -> list[Use]:
    """Return the uses that none of the rights covers.

    A use that is covered but was refused does not count: a test had taken the right away.
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
    """Record the used rights from a control plane's log for the end of the run."""
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
    """Yield a control plane whose audit log is recorded for the run."""
    with ControlPlane.start(Options(binaries=binaries, audit_log=True)) as plane:
        yield plane
        leave_behind(plane.audit_log)


@dataclass(slots=True, eq=False)
class UsedRights:
    """A pytest plugin for the process that leads a run.

    Attributes:
        whole: Whether every test of the project is run.
        manifests: The folders with the manifests that grant the rights.
    """

    whole: bool
    manifests: Sequence[Path] = FOLDERS
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="retrofit-rights-")
    )
    _not_run: set[str] = field(default_factory=set)
    _unused: list[Right] = field(default_factory=list)
    _ungranted: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, config: pytest.Config, *manifests: Path) -> Self:
        """Return the plugin for a run, and set `FOLDER` for the processes of the run."""
        choices = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
        part = any(config.getoption(name, default=None) for name in choices)
        whole = config.args_source is config.ArgsSource.TESTPATHS and not part
        plugin = cls(whole=whole, manifests=manifests or FOLDERS)
        os.environ[FOLDER] = plugin.folder.name
        return plugin

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the cluster tests that did not pass."""
        passed = report.passed or hasattr(report, "wasxfail")
        counts = "cluster" in report.keywords and not report.nodeid.startswith(_CONFORMANCE)
        if counts and not passed:
            self._not_run.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Read the records of all processes, and fail the run if rights and uses differ."""
        uses = _left_behind(Path(self.folder.name))
        self.folder.cleanup()
        # Absent where its plugin is switched off.
        cache: pytest.Cache | None = getattr(session.config, "cache", None)
        if self.whole and uses:
            rights = granted(*self.manifests)
            self._unused = never_used(rights, uses)
            missing = never_granted(rights, uses)
            self._ungranted = [f"{use.right} ({use.decision})" for use in missing]
            if cache is not None:
                cache.set(_FOUND, self._ungranted)
        elif cache is not None and session.config.getoption("lf"):
            # A second try of the tests that failed cannot show that programs may do what they do.
            self._ungranted = cache.get(_FOUND, [])
        wrong = self._ungranted or (self._unused and not self._not_run)
        if wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the rights that were never granted or never used."""
        if self._ungranted:
            _tell(
                terminalreporter,
                "FAILED: what programs asked for and the manifests do not grant",
                self._ungranted,
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
