"""The options of `retrofit explain`, and the plan of an explanation that reads files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import click

from reconciler.api.meta import Object
from reconciler.cli.desk.acceptance import compile_acceptable
from reconciler.cli.desk.cue import cue_of
from reconciler.cli.desk.file_objects import FileObjects, Scopes
from reconciler.cli.desk.files import objects, read_all, read_one
from reconciler.cli.desk.inputs import placed, read_exceptions
from reconciler.cli.desk.operations import DELETE, UPDATE
from reconciler.cli.desk.policies import (
    bind_account,
    check_settings,
    is_given,
    placed_policy,
    rule_names,
)
from reconciler.cli.desk.request import Request
from reconciler.cli.desk.values import DeskValues, read_settings, read_user, read_values
from reconciler.cli.explain.object_source import FileObjectSource, ObjectSource
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.services.catalog.settings import Filters

MAX_TRIGGERS = 100
"""The maximum number of triggers per call; a longer explanation would not be readable."""

Policies = list[tuple[Object, CompiledPolicy]]
"""Policies as written, and compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The policies and requests to explain; without requests, the rules are outlined.

    Attributes:
        filters: The resource filters of the cluster; None if they are not known.
    """

    policies: Policies
    requests: Sequence[Request]
    object_source: ObjectSource
    desk: DeskValues
    exceptions: Sequence[PolicyException]
    filters: Filters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of the command line.

    Attributes:
        operation: The value of `--operation`, None where it is not given.
        passed_over: Skipped files of folders, which hold no objects.
    """

    policy: str
    trigger: str | None
    old: str | None
    targets: Sequence[str]
    operation: str | None
    userinfo: str | None
    exceptions: Sequence[str]
    exception_namespace: str | None
    settings: Sequence[str]
    values: str | None
    cue: str = ""
    passed_over: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Reject combinations of flags that make no sense.

        Raises:
            UsageError: A flag has no effect, or standard input is given twice.
        """
        single = (self.policy, self.trigger, self.old, self.userinfo, self.values)
        if [*single, *self.targets, *self.exceptions].count("-") > 1:
            raise click.UsageError("standard input (-) can be read once only")
        if self.trigger is None and (self.old or self.targets or self.userinfo):
            raise click.UsageError("--old, --target and --userinfo need --trigger")

    def desk(self) -> DeskValues:
        """Return the values for variables, of the values file and of ``--set``."""
        values = DeskValues() if self.values is None else read_values(*read_one(self.values))
        return replace(values, fixed=read_settings(self.settings))

    def requests(self, triggers: Iterable[Object]) -> list[Request]:
        """Return one request for each trigger."""
        old = None if self.old is None else _one(self.old)
        found = [
            Request(
                # An old object implies an UPDATE.
                operation=UPDATE if old and self.operation is None else self.operation,
                obj=obj,
                old=old,
                user=None if self.userinfo is None else read_user(*read_one(self.userinfo)),
            )
            for obj in triggers
        ]
        if not found:
            raise InvalidSetting(f"{self.trigger}: no object found")
        if len(found) > MAX_TRIGGERS:
            text = f"{len(found)} objects found; at most {MAX_TRIGGERS} are explained"
            raise InvalidSetting(f"{self.trigger}: {text}")
        return found

    def objects(self, names: Iterable[str], scopes: Scopes) -> list[Object]:
        """Return the objects of files."""
        return placed(names, scopes, pass_over=self.passed_over.add)

    def policies(self, desk: DeskValues) -> Policies:
        """Return the policies of the file that POLICY names.

        Raises:
            InvalidSetting: The file holds no policy.
            InvalidPolicy: A policy is refused.
        """
        found = [
            compiled(placed_policy(obj), desk, f"{document.place}: ")
            for document, obj in objects(read_all([self.policy]), self.passed_over.add)
            if is_given(obj)
        ]
        if not found:
            raise InvalidSetting(f"{self.policy}: no policy found")
        check_settings(desk.fixed, [policy for _, policy in found])
        return found

    def plan(self) -> Plan:
        """Return the plan of an explanation that reads only files.

        Raises:
            InvalidSetting: A file cannot be used.
            InvalidPolicy: A policy is refused.
        """
        desk, scopes = self.desk(), Scopes()
        policies = self.policies(desk)
        triggers = [] if self.trigger is None else self.objects([self.trigger], scopes)
        others = self.objects(self.targets, scopes)
        requests = [] if self.trigger is None else self.requests(triggers)
        # A deleted object is not a target.
        seen = [] if self.operation == DELETE else triggers
        file_objects = FileObjects([*seen, *others, *desk.namespaces], cue=cue_of(self.cue))
        return Plan(
            policies=policies,
            requests=requests,
            object_source=FileObjectSource(file_objects, desk.namespace_labels),
            desk=desk,
            exceptions=read_exceptions(self.exceptions),
        )


def compiled(policy: Object, desk: DeskValues, place: str = "") -> tuple[Object, CompiledPolicy]:
    """Return a policy with its programs.

    Raises:
        InvalidPolicy: The policy is refused; the message begins with ``place``.
    """
    name = str(policy["metadata"].get("name", ""))
    try:
        found = compile_acceptable(policy, given=desk.given(name, rule_names(policy)))
        return policy, bind_account(policy, found)
    except InvalidPolicy as error:
        raise InvalidPolicy("", f"{place}{policy['kind']} {name}: {error}") from error


def _one(name: str) -> Object:
    found = placed([name], Scopes())
    if len(found) != 1:
        raise InvalidSetting(f"{name}: expected one object, found {len(found)}")
    return found[0]
