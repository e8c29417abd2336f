"""Holds the rights of the manifests against those that are used: by the audit logs of all suites.

Each control plane of a run leaves behind which rights the API server let our accounts use. When
every test was run, the rights are named that the manifests grant and nobody used.
"""

import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
import yaml

from reconciler.cli.dev.binaries import Binaries
from reconciler.cli.dev.cluster import ControlPlane, Options

ACCOUNT = "system:serviceaccount:kyverno:"
FOLDER = "RETROFIT_TEST_RIGHTS"
"""Where the processes of a run leave what was used."""
_BASE = Path(__file__).parents[1] / "manifests" / "base"
_ALLOWED = "authorization.k8s.io/decision"
_CREATED = 201
_ASKED_BY_POLICIES = frozenset({"record", "process"})
"""Verbs of no request: admission policies ask about them, which no log shows."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        account: A ServiceAccount of namespace kyverno.
        namespace: Where it is granted or used; empty for all, and for what has no namespace.
        resource: With its subresource.
        name: Empty for any.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, used: "Right") -> bool:
        """Tell whether a use needs no other right than this."""
        return (
            (self.account, self.verb) == (used.account, used.verb)
            and (self.group, self.resource) == (used.group, used.resource)
            and self.namespace in ("", used.namespace)
            and self.name in ("", used.name)
        )

    def __str__(self) -> str:
        """Return it as one would ask for it."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {resource}{name}{where}"


def used(audit_log: Path) -> set[Right]:
    """Return what our accounts were allowed to do, by the log of one API server."""
    found = set()
    for line in audit_log.read_bytes().splitlines():
        if ACCOUNT.encode() not in line:
            continue
        event = orjson.loads(line)
        if (event.get("annotations") or {}).get(_ALLOWED) == "allow":
            found.update(_uses(event))
    return found


def _uses(event: Any) -> Iterator[Right]:
    ref, user = event.get("objectRef") or {}, event["user"]["username"]
    acting = (event.get("impersonatedUser") or {}).get("username", user)
    if acting != user and user.startswith(ACCOUNT):
        namespace, _, name = acting.removeprefix("system:serviceaccount:").partition(":")
        yield Right(
            user.removeprefix(ACCOUNT), "impersonate", "", "serviceaccounts", namespace, name
        )
    if acting.startswith(ACCOUNT) and ref:
        subresource = ref.get("subresource", "")
        right = Right(
            account=acting.removeprefix(ACCOUNT),
            verb=event["verb"],
            group=ref.get("apiGroup", ""),
            resource=ref["resource"] + (f"/{subresource}" if subresource else ""),
            namespace=ref.get("namespace", ""),
            name=ref.get("name", ""),
        )
        yield right
        if right.verb == "patch" and (event.get("responseStatus") or {}).get("code") == _CREATED:
            yield replace(right, verb="create")


def granted(folder: Path = _BASE) -> set[Right]:
    """Return what the manifests of a folder grant, but for the cluster's own roles."""
    documents = [
        document
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
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
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


def never_used(rights: Iterable[Right], uses: Iterable[Right]) -> list[Right]:
    """Return the rights that cover none of the uses."""
    known = frozenset(uses)
    return sorted(right for right in rights if not any(map(right.covers, known)))


def leave_behind(audit_log: Path | None) -> None:
    """Note for the end of the run what a control plane's log says, while it is still there."""
    folder = os.environ.get(FOLDER)
    if not folder or audit_log is None or not audit_log.exists():
        return
    lines = [[getattr(right, name) for name in Right.__slots__] for right in used(audit_log)]
    (Path(folder) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(lines))


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
    """

    whole: bool
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="retrofit-rights-")
    )
    _left: list[Right] = field(default_factory=list)

    @classmethod
    def of(cls, config: pytest.Config) -> Self:
        """Return it for a run, and let the processes of the run know where to leave notes."""
        choices = ("keyword", "markexpr", "deselect", "lf")
        part = any(config.getoption(name, default=None) for name in choices)
        plugin = cls(whole=config.args_source is config.ArgsSource.TESTPATHS and not part)
        os.environ[FOLDER] = plugin._folder.name
        return plugin

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Take in what all processes left behind."""
        uses = {
            Right(*values)
            for file in Path(self._folder.name).glob("*.json")
            for values in json.loads(file.read_text())
        }
        self._folder.cleanup()
        if self.whole and uses:
            self._left = never_used(granted(), uses)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the rights."""
        if self._left:
            terminalreporter.section("rights that the manifests grant and nobody used")
            for right in self._left:
                terminalreporter.write_line(str(right))
