"""Declared hooks: compiles a `Hook` or `ClusterHook` into bindings and a run.

``spec`` holds the bindings as an executable prints them. ``spec.run`` defines the operations of a
run: templates with variables, rendered for each element of the result of ``foreach``, or a jq
program. Both read the same binding contexts as an executable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import Kind, Object, PolicyRef, policy_ref
from reconciler.engine.allowance import Allowance
from reconciler.engine.reading import kind_of
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import VERSION, read_config
from reconciler.hooks.operations import OperationType, check_template, is_plain
from reconciler.hooks.programs import check_program
from reconciler.hooks.templates import Render, compile_document
from reconciler.languages.jmespath import braces
from reconciler.languages.jmespath.expression import Expression, compile_expression

GROUP: Final = "kube-retrofit.dev"
HOOKS: Final = Kind(group=GROUP, version="v1alpha1", kind="Hook", plural="hooks", namespaced=True)
CLUSTER_HOOKS: Final = Kind(
    group=GROUP, version="v1alpha1", kind="ClusterHook", plural="clusterhooks", namespaced=False
)
HOOK_KINDS: Final = (HOOKS, CLUSTER_HOOKS)

_OURS: Final = frozenset({"run", "executable"})
_FOREACH: Final = "contexts"
"""The default of foreach, with one element for each context."""
_MOST: Final = 10_000
"""Maximum number of operations of one run."""
_MOST_LISTED: Final = 100
"""Maximum number of bindings of each kind, each of which needs a watch, and of templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRun:
    """Definition of a run's operations, either by templates or by a program.

    Attributes:
        elements: The compiled ``foreach``; a result that is not a list is one element.
        templates: One for each operation.
        texts: The templates as their author wrote them, to derive the rights that they need.
        program: A jq program that reads ``{"contexts": [...]}`` and returns operations.
    """

    elements: Expression | None = None
    templates: tuple[Render, ...] = ()
    texts: tuple[Mapping[str, Any], ...] = ()
    program: str = ""

    @property
    def programs(self) -> Iterator[tuple[str, str]]:
        """Yield the jq programs without variables, each after its location."""
        if self.program:
            yield "spec.run.jq", self.program
        for index, text in enumerate(self.texts):
            program = text.get("jqFilter")
            if text["operation"] == OperationType.JQ_PATCH and is_plain(program):
                yield f"spec.run.operations[{index}].jqFilter", braces.unescape(str(program))

    def answer(self, contexts: Sequence[Mapping[str, Any]], allowance: Allowance) -> list[Any]:
        """Return the operations that the templates render, not yet validated.

        Raises:
            EvaluationError: An expression cannot be evaluated, or there are too many operations.
        """
        if self.elements is None:
            raise EvaluationError("spec.run.jq is evaluated by jq")
        data = {"contexts": list(contexts)}
        elements = _listed(self.elements.search(data, allowance))
        if len(elements) * len(self.templates) > _MOST:
            raise EvaluationError(
                f"spec.run.foreach: {len(elements)} elements make more than {_MOST} operations"
            )
        return [
            render({**data, "element": element, "elementIndex": index}, allowance)
            for index, element in enumerate(elements)
            for render in self.templates
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredHook:
    """A compiled hook.

    Attributes:
        uid: That of the object, empty if it has none yet.
        run: None if it is an executable.
        executable: Path of the executable; empty for a declared hook.
    """

    ref: PolicyRef
    uid: str
    generation: int
    config: HookConfig
    run: DeclaredRun | None
    executable: str

    @property
    def confined_to(self) -> str:
        """Return the namespace that the hook is confined to, empty if it may act in all.

        An executable is not: it has the rights of its Pod, and its Hook only represents it.
        """
        return "" if self.executable else self.ref.namespace

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """Return the jq programs of the bindings and the run, each after its location."""
        found = [(f"spec.{place}", program) for place, program in self.config.programs]
        if self.run is not None:
            found += self.run.programs
        return tuple(found)


def is_executable(obj: Object) -> bool:
    """Return whether a hook is an executable, even if its object is invalid otherwise."""
    spec = obj.get("spec")
    return isinstance(spec, Mapping) and bool(spec.get("executable"))


def compile_hook(obj: Object) -> DeclaredHook:
    """Compile a Hook or ClusterHook.

    Its jq programs are checked, but not compiled: `services.hooks.compiling` does that.

    Raises:
        InvalidPolicy: It has errors; lists all locations, below ``spec``.
    """
    ref, meta, spec = policy_ref(obj), obj.get("metadata") or {}, obj.get("spec")
    if not isinstance(spec, Mapping):
        raise InvalidPolicy("spec", f"expected an object, got {kind_of(spec)}")
    run, executable = None, spec.get("executable", "")
    if not executable:
        _check_lengths(spec)
    with ErrorList() as errors:
        config = errors.attempt(_config, spec) or HookConfig()
        if not isinstance(executable, str):
            reason = f"expected a string, got {kind_of(executable)}"
            errors.add(InvalidPolicy("spec.executable", reason))
        elif executable and "run" in spec:
            reason = "cannot be combined with executable: remove one of them"
            errors.add(InvalidPolicy("spec.run", reason))
        elif not executable:
            run = errors.attempt(_run, spec.get("run")) or DeclaredRun()
            for index, text in enumerate(run.texts):
                _check_confined(text, ref.namespace, f"spec.run.operations[{index}]", errors)
            _check_declared(config, ref.namespace, errors)
    if ref.namespace and not executable:
        config = _confined(config, ref.namespace)
    return DeclaredHook(
        ref=ref,
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        config=config,
        run=run,
        executable=executable,
    )


def _check_lengths(spec: Mapping[str, Any]) -> None:
    """Refuse long lists before they are compiled."""
    run = spec.get("run")
    lists = {
        "kubernetes": spec.get("kubernetes"),
        "schedule": spec.get("schedule"),
        "run.operations": run.get("operations") if isinstance(run, Mapping) else None,
    }
    with ErrorList() as errors:
        for name, found in lists.items():
            if isinstance(found, list) and len(found) > _MOST_LISTED:
                reason = f"has {len(found)} items, more than {_MOST_LISTED}: write several hooks"
                errors.add(InvalidPolicy(f"spec.{name}", reason))


def _config(spec: Mapping[str, Any]) -> HookConfig:
    bound = {name: value for name, value in spec.items() if name not in _OURS}
    if not bound and spec.get("executable"):
        # The configuration of the executable cannot be used; the status of its Hook says why.
        return HookConfig()
    if not bound:
        raise InvalidPolicy("spec", "has no bindings: add kubernetes, schedule or onStartup")
    try:
        return read_config({"configVersion": VERSION, **bound})
    except InvalidPolicy as error:
        errors = ErrorList()
        for problem in (error, *error.others):
            place = f"spec.{problem.location}" if problem.location else "spec"
            errors.add(InvalidPolicy(place, problem.reason))
        raise errors.combined() from error


def _confined(config: HookConfig, namespace: str) -> HookConfig:
    """Return a configuration whose Kubernetes bindings select objects of one namespace only."""
    return replace(
        config,
        kubernetes=tuple(
            replace(binding, selection=replace(binding.selection, namespaces=(namespace,)))
            for binding in config.kubernetes
        ),
    )


def _check_declared(config: HookConfig, namespace: str, errors: ErrorList) -> None:
    for name, bindings in (
        ("kubernetesValidating", config.validating),
        ("kubernetesMutating", config.mutating),
        ("kubernetesCustomResourceConversion", config.conversions),
    ):
        if bindings:
            reason = "only an executable can answer the API server: use a policy instead"
            errors.add(InvalidPolicy(f"spec.{name}", reason))
    if not namespace:
        return
    reason = f"a Hook sees its own namespace {namespace} only: use a ClusterHook"
    for index, binding in enumerate(config.kubernetes):
        place = f"spec.kubernetes[{index}].namespace"
        if binding.selection.namespace_labels is not None:
            errors.add(InvalidPolicy(f"{place}.labelSelector", reason))
        if set(binding.selection.namespaces or ()) - {namespace}:
            errors.add(InvalidPolicy(f"{place}.nameSelector.matchNames", reason))


def _check_confined(
    text: Mapping[str, Any], namespace: str, location: str, errors: ErrorList
) -> None:
    """Refuse a literal namespace other than the Hook's; a run checks those with variables."""
    obj = text.get("object")
    meta = obj.get("metadata") if isinstance(obj, Mapping) else None
    inner = meta.get("namespace") if isinstance(meta, Mapping) else None
    for place, found in (
        ("namespace", text.get("namespace")),
        ("object.metadata.namespace", inner),
    ):
        if namespace and found and is_plain(found) and found != namespace:
            reason = f"a Hook changes its own namespace {namespace} only: use a ClusterHook"
            errors.add(InvalidPolicy(f"{location}.{place}", reason))


def _run(raw: Any) -> DeclaredRun:
    if not isinstance(raw, Mapping):
        reason = f"expected an object with operations or jq, got {kind_of(raw)}"
        raise InvalidPolicy("spec.run", "is required" if raw is None else reason)
    with ErrorList() as errors:
        for name in raw:
            if name not in {"foreach", "operations", "jq"}:
                reason = "unknown field, expected one of foreach, jq, operations"
                errors.add(InvalidPolicy(f"spec.run.{name}", reason))
        if ("operations" in raw) == ("jq" in raw):
            errors.add(InvalidPolicy("spec.run", "needs either operations or jq"))
            return DeclaredRun()
        run = errors.attempt(_program if "jq" in raw else _templates, raw)
    return run or DeclaredRun()


def _program(raw: Mapping[str, Any]) -> DeclaredRun:
    program = raw["jq"]
    if not isinstance(program, str):
        raise InvalidPolicy("spec.run.jq", f"expected a string, got {kind_of(program)}")
    if "foreach" in raw:
        raise InvalidPolicy(
            "spec.run.foreach", "requires operations: a jq program reads .contexts[] instead"
        )
    check_program(program, location="spec.run.jq")
    return DeclaredRun(program=program)


def _templates(raw: Mapping[str, Any]) -> DeclaredRun:
    operations, foreach = raw["operations"], raw.get("foreach", _FOREACH)
    if not isinstance(operations, list) or not operations:
        raise InvalidPolicy("spec.run.operations", "expected a list with at least one operation")
    if not isinstance(foreach, str):
        raise InvalidPolicy("spec.run.foreach", f"expected a string, got {kind_of(foreach)}")
    with ErrorList() as errors:
        elements = errors.attempt(compile_expression, foreach, location="spec.run.foreach")
        templates = [
            errors.attempt(_template, item, f"spec.run.operations[{index}]")
            for index, item in enumerate(operations)
        ]
    return DeclaredRun(
        elements=elements,
        templates=tuple(item for item in templates if item is not None),
        texts=tuple(operations),
    )


def _template(raw: Any, location: str) -> Render:
    if not isinstance(raw, Mapping):
        raise InvalidPolicy(location, f"expected an object, got {kind_of(raw)}")
    with ErrorList() as errors:
        errors.attempt(check_template, raw, location)
        return compile_document(dict(raw), location=location)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
