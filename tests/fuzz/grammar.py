"""Strategies for policies, from the grammar of the policy language, and for their objects.

Most policies compile, because a policy that is refused does not reach the rest of the programs.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from reconciler.dialects.kyverno.preconditions.operators import OPERATORS
from reconciler.languages.jmespath.functions.registry import REGISTRY
from tests.fuzz.documents import VALUES

Object = dict[str, Any]
T = TypeVar("T")

_TRIGGER = (
    "request",
    "request.object",
    "request.oldObject",
    "request.object.data",
    "request.object.data.a",
    "request.object.metadata.labels.app",
    "request.object.spec.containers[].image",
    "request.userInfo.username",
    "request.operation",
    "serviceAccountName",
    "entry",
    "entry.a",
    "images.containers.*.registry",
    "`1`",
    "`[1, 2]`",
    "'x'",
    '`{"a": 1}`',
)
_TARGET = (*_TRIGGER, "target", "target.data.a", "target.metadata.annotations")
_ELEMENT = (*_TARGET, "element", "element.name", "elementIndex")
_FUNCTIONS = sorted(REGISTRY)
_OPERATORS = sorted(OPERATORS)
_NAMES = ("a", "b", "web", "a-b")
_WILD = ("a", "*", "w?b", "a*")
_FIELDS = ("a", "b", "data", "spec", "name", "metadata", "(a)", "+(a)", "=(a)", "<(a)", "(name)")
_FORMS = (
    "({})[?{}]",
    "({}) || ({})",
    "({}) && ({})",
    "({}) | ({})",
    "({}) == ({})",
    "[{}, {}]",
    "{{x: {}, y: {}}}",
)


@cache
def _index(count: int) -> st.SearchStrategy[int]:
    # Creating a strategy takes many times longer than drawing from it.
    return st.integers(0, count - 1)


class Author:
    """Generates parts of policies; every decision is drawn, so that failures can be shrunk."""

    def __init__(self, draw: st.DrawFn, fields: tuple[str, ...] = _TRIGGER) -> None:
        self._draw = draw
        self._fields = fields

    def within(self, fields: tuple[str, ...]) -> "Author":
        """Return an author whose expressions use other fields."""
        return Author(self._draw, fields)

    def pick(self, *options: T) -> T:
        """Return one of the options."""
        return options[self._draw(_index(len(options)))]

    def some(self, make: Callable[[], T], least: int = 0, most: int = 2) -> list[T]:
        """Return a list of ``least`` to ``most`` items."""
        return [make() for _ in range(least + self._draw(_index(most - least + 1)))]

    def maybe(self, **parts: Callable[[], Any]) -> Object:
        """Return an object with some of the parts."""
        return {name: make() for name, make in parts.items() if self._draw(_index(2))}

    def plain(self) -> Any:
        """Return a value without variables."""
        value = self._draw(VALUES)
        return "a" if any(mark in repr(value) for mark in ("{{", "$(")) else value

    def expression(self, depth: int = 3) -> str:
        """Return a JMESPath expression over the known fields."""
        form = self.pick("field", "field", "step", "pair", "call", "call") if depth else "field"
        if form == "step":
            step = self.pick(".a", "[0]", "[]", "[*]", "[1:]", ".*", "[?a]", ".{x: a}")
            return f"({self.expression(depth - 1)}){step}"
        if form == "pair":
            both = self.expression(depth - 1), self.expression(depth - 1)
            return self.pick(*_FORMS).format(*both)
        if form == "call":
            name = self.pick(*_FUNCTIONS)
            taken = (
                ("&" if "expression" in types else "") + self.expression(depth - 1)
                for types in REGISTRY[name].takes
            )
            return f"{name}({', '.join(taken)})"
        return self.pick(*self._fields)

    def text(self) -> str:
        """Return a text with or without variables."""
        form = self.pick(
            *("a", "b", "7", "a*", "2h", "1Gi", "1.2.3", "10-20"),
            *("{{{{ {} }}}}", "{{{{ {} }}}}", "a-{{{{ {} }}}}-b", "{{{{ {} }}}}{{{{ {} }}}}"),
            "{{{{ request.object.data.{{{{ {} }}}} }}}}",
            "\\{{{{ a }}}}",
        )
        return form.format(self.expression(), self.pick(*self._fields))

    def value(self) -> Any:
        """Return a text that may have variables, or any value without variables."""
        return self.text() if self._draw(_index(2)) else self.plain()

    def conditions(self) -> list[Object]:
        """Return one or two conditions."""
        return self.some(
            lambda: {
                "key": self.value(),
                "operator": self.pick(*_OPERATORS),
                "value": self.value(),
            },
            1,
        )

    def preconditions(self) -> Object:
        """Return preconditions."""
        return self.maybe(any=self.conditions, all=self.conditions)

    def entry(self) -> Object:
        """Return a context entry without its name."""
        match self.pick("configMap", "apiCall", "variable", "value"):
            case "configMap":
                return {"configMap": {"name": self.text(), "namespace": self.text()}}
            case "apiCall":
                path = self.pick(
                    "/api/v1/namespaces/a/configmaps/a",
                    "/apis",
                    "/api/v1/namespaces/{{ request.namespace }}/pods",
                )
                optional = self.maybe(jmesPath=self.expression, default=self.plain)
                return {"apiCall": {"urlPath": path, **optional}}
            case "variable":
                optional = self.maybe(default=self.plain)
                return {"variable": {"jmesPath": self.expression(), **optional}}
            case _:
                return {"variable": {"value": self.value()}}

    def entries(self) -> list[Object]:
        """Return the context of a target or an element."""
        return self.some(lambda: {"name": "other", **self.entry()})

    def merge(self, depth: int = 3) -> Any:
        """Return a part of a strategic merge patch."""
        if depth and self._draw(_index(2)):
            return {self.pick(*_FIELDS): self.merge(depth - 1) for _ in range(self.pick(1, 2))}
        if depth and self.pick(0, 0, 1):
            return self.some(lambda: self.merge(depth - 1))
        return self.value()

    def path(self) -> str:
        """Return a path for an operation of a JSON patch."""
        steps = ("data", "spec", "a", "0", "-", "a~1b", "{{ request.object.data.a }}")
        return "".join(f"/{step}" for step in self.some(lambda: self.pick(*steps), 1, 3))

    def operation(self) -> str:
        """Return a line of a JSON patch in YAML, which may be malformed."""
        match self.pick("value", "value", "remove", "from", "odd"):
            case "value":
                op = self.pick("add", "replace", "test")
                text = self.text().replace("'", "")
                return f"- {{op: {op}, path: '{self.path()}', value: '{text}'}}"
            case "remove":
                return f"- {{op: remove, path: '{self.path()}'}}"
            case "from":
                op = self.pick("copy", "move")
                return f"- {{op: {op}, path: '{self.path()}', from: '{self.path()}'}}"
            case _:
                return self.pick("- &a [*a]", "- *b", "? [a]", "- {op: add", "- 7", "&a {b: *a}")

    def patch(self) -> Object:
        """Return a strategic merge patch or a JSON patch."""
        if self._draw(_index(2)):
            merged = {self.pick(*_FIELDS): self.merge() for _ in range(self.pick(1, 2))}
            return {"patchStrategicMerge": merged}
        return {"patchesJson6902": "\n".join(self.some(self.operation, 1, 3))}

    def edits(self, depth: int = 2) -> Object:
        """Return a patch, or ``foreach`` entries with patches."""
        if not depth or self.pick(0, 1):
            return self.patch()
        return {"foreach": self.some(lambda: self.loop(depth), 1)}

    def loop(self, depth: int) -> Object:
        """Return an entry of ``foreach``."""
        inner = self.within(_ELEMENT)
        elements = self.pick("request.object.data.*", "target.spec.containers", "`[1, {}]`", "")
        return {
            "list": elements or self.expression(),
            **self.maybe(
                order=lambda: self.pick("Ascending", "Descending"),
                context=inner.entries,
                preconditions=inner.preconditions,
            ),
            **inner.edits(depth - 1),
        }

    def labels(self, least: int = 0) -> Object:
        """Return labels."""
        keys = self.some(lambda: self.pick("app", "env", "example.com/x"), least)
        return {key: self.pick("a", "b", "") for key in keys}

    def requirement(self) -> Object:
        """Return a requirement of a label selector."""
        operator = self.pick("In", "NotIn", "Exists", "DoesNotExist")
        values = {"values": ["a", "b"]} if operator.endswith("In") else {}
        return {"key": self.pick("app", "env"), "operator": operator, **values}

    def selector(self) -> Object:
        """Return a label selector."""
        more = self.maybe(matchExpressions=lambda: self.some(self.requirement, 1))
        return {"matchLabels": self.labels(1), **more}

    def kinds(self) -> list[str]:
        """Return the kinds of a filter."""
        known = ("ConfigMap", "v1/Secret", "apps/*/Deployment", "Pod/binding", "Pod", "*", "C*")
        return self.some(lambda: self.pick("ConfigMap", *known), 1)

    def filter(self, users: bool) -> Object:
        """Return a filter for match or exclude, which may name users if ``users`` is true."""
        resources = {
            "kinds": self.kinds(),
            **self.maybe(
                names=lambda: self.some(lambda: self.pick(*_WILD)),
                annotations=lambda: {self.pick(*_WILD): self.pick(*_WILD)},
                selector=self.selector,
                namespaceSelector=self.selector,
                operations=lambda: [self.pick("CREATE", "UPDATE"), self.pick("DELETE", "CONNECT")],
            ),
        }
        subjects = [{"kind": self.pick("User", "Group"), "name": self.pick("jane", "devs", "*")}]
        whose = self.maybe(
            subjects=lambda: subjects,
            roles=lambda: [self.pick("a:reader", "*:x")],
            clusterRoles=lambda: [self.pick("admin", "v*")],
        )
        return {"resources": resources, **(whose if users else {})}

    def block(self, users: bool) -> Object:
        """Return the value of ``match`` or ``exclude``."""
        form = self.pick("", "any", "all")
        if not form:
            return self.filter(users)
        return {form: self.some(lambda: self.filter(users), 1)}

    def target(self, namespace: str) -> Object:
        """Return a target."""
        inner = self.within(_TARGET)
        return {
            "apiVersion": self.pick("v1", "apps/v1", "*"),
            "kind": self.pick("ConfigMap", "ConfigMap", "Secret", "Deployment", "C*"),
            "namespace": namespace or self.pick(*_NAMES, self.text()),
            **self.maybe(
                name=lambda: self.pick(*_NAMES, self.text()),
                selector=self.selector,
                context=inner.entries,
                preconditions=inner.preconditions,
            ),
        }

    def rule(self, name: str, namespace: str, users: bool) -> Object:
        """Return a rule."""
        first = {"name": "entry", "variable": {"value": {"a": "{{ request.operation }}"}}}
        flags = {} if users else self.maybe(mutateExistingOnPolicyUpdate=lambda: True)
        return {
            "name": name,
            "match": self.block(users),
            "context": [first, *self.entries()],
            **self.maybe(
                exclude=lambda: self.block(users),
                preconditions=self.preconditions,
                skipBackgroundRequests=lambda: self.pick(True, False),
            ),
            "mutate": {
                "targets": self.some(lambda: self.target(namespace), 1),
                **flags,
                **self.within(_TARGET).edits(),
            },
        }

    def policy(self) -> Object:
        """Return a ClusterPolicy or a Policy."""
        namespace = self.pick("", "", "a")
        background = self.pick(True, True, False)
        names = self.pick(("r0",), ("r0", "r1"))
        hooks = {"timeoutSeconds": 5, "matchConditions": [{"name": "c", "expression": "true"}]}
        return {
            "apiVersion": "kyverno.io/v1",
            "kind": "Policy" if namespace else "ClusterPolicy",
            "metadata": {
                "name": "p",
                "uid": "uid-of-p",
                "generation": 1,
                **({"namespace": namespace} if namespace else {}),
            },
            "spec": {
                "background": background,
                "rules": [self.rule(name, namespace, not background) for name in names],
                **self.maybe(
                    applyRules=lambda: self.pick("One", "All"),
                    failurePolicy=lambda: self.pick("Fail", "Ignore"),
                    webhookConfiguration=lambda: hooks,
                ),
            },
        }

    def exception(self) -> Object:
        """Return a PolicyException."""
        names = {"policyName": "p", "ruleNames": self.some(lambda: self.pick(*_WILD))}
        return {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "ok"},
            "spec": {
                "exceptions": [names],
                "match": self.block(users=True),
                **self.maybe(conditions=self.preconditions, background=lambda: False),
            },
        }

    def global_entry(self) -> Object:
        """Return a GlobalContextEntry."""
        watched = {"version": "v1", "resource": self.pick("pods", "secrets")}
        projected = [{"name": "a", "jmesPath": self.expression()}]
        return {
            "apiVersion": "kyverno.io/v2",
            "kind": "GlobalContextEntry",
            "metadata": {"name": "g"},
            "spec": {
                **self.pick(
                    {"kubernetesResource": watched},
                    {"apiCall": {"urlPath": "/apis", "refreshInterval": "1m"}},
                ),
                **self.maybe(projections=lambda: projected),
            },
        }

    def thing(self) -> Object:
        """Return an object that may be a trigger or a target."""
        meta = {"name": self.pick(*_NAMES), "namespace": self.pick("a", "a", "b")}
        containers = [{"name": "c", "image": "nginx:1"}, {"name": "d", "image": "a.io/b@sha256:1"}]
        return {
            "apiVersion": "v1",
            "kind": self.pick("ConfigMap", "ConfigMap", "Secret", "Pod"),
            "metadata": {
                **meta,
                **self.maybe(
                    labels=self.labels,
                    annotations=self.labels,
                    uid=lambda: "uid-1",
                    resourceVersion=lambda: self.pick("1", "77"),
                    deletionTimestamp=lambda: "2026-01-01T00:00:00Z",
                    finalizers=lambda: ["example.com/x"],
                ),
            },
            **self.maybe(
                data=lambda: {"a": self.plain(), "b": self.plain()},
                spec=lambda: {"containers": containers},
            ),
        }


@st.composite
def _policies(draw: st.DrawFn) -> Object:
    return Author(draw).policy()


@st.composite
def _objects(draw: st.DrawFn) -> Object:
    return Author(draw).thing()


@st.composite
def _written(draw: st.DrawFn) -> Object:
    author = Author(draw)
    return author.pick(author.policy, author.policy, author.exception, author.global_entry)()


OPERATIONS = st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"])
POLICIES = _policies()
OBJECTS = _objects()
WRITTEN = _written()
"""Policies, PolicyExceptions and GlobalContextEntries."""
