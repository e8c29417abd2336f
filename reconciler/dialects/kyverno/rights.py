"""Which rights the targets and context entries of a rule need, as far as its text says it.

What only a trigger tells, a variable as namespace or name, is asked for in all namespaces and for
any object.
"""

from reconciler.api.meta import CONFIG_MAPS
from reconciler.api.paths import parse_path, segments
from reconciler.api.rights import ANY, Right, TargetNeed
from reconciler.dialects.kyverno.entries import ApiCallEntry, ConfigMapEntry, Entry
from reconciler.dialects.kyverno.match import Matcher
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import Context
from reconciler.engine.values.wildcard import has_wildcard

_NOTHING = Context({})
_VARIABLE = "{}"
_OWN_NAMESPACE = frozenset(
    {
        ("request", "namespace"),
        ("request", "object", "metadata", "namespace"),
        ("request", "oldObject", "metadata", "namespace"),
    }
)
_OWN_NAME = frozenset(
    {
        ("request", "name"),
        ("request", "object", "metadata", "name"),
        ("request", "oldObject", "metadata", "name"),
    }
)
_MOST_NAMESPACES = 20
_ALL = ("",)


def target_need(target: Target, matcher: Matcher, *, namespace: str) -> TargetNeed:
    """Return what a target needs.

    Args:
        target: The compiled target.
        matcher: Of its rule: a target in the trigger's namespace is where triggers can be.
        namespace: Of a namespaced policy, else empty.
    """
    kind = constant(target.kind)
    return TargetNeed(
        location=target.location,
        api_version=constant(target.api_version),
        kind="" if has_wildcard(kind) else kind,
        namespaces=(namespace,) if namespace else _namespaces(target.namespace, matcher),
        anywhere=target.namespace is None,
        in_one=_is_variable(target.namespace),
        named=target.name is not None and not _is_open(target.name),
        name=constant(target.name),
        looked_at=target.selector is not None or target.uid is not None,
    )


def entry_right(entry: Entry) -> Right | None:
    """Return the right that a context entry needs, None where it needs none."""
    match entry:
        case ConfigMapEntry():
            given = entry.home if entry.namespace is None else constant(entry.namespace)
            name = constant(entry.config_map)
            return Right.of("get", CONFIG_MAPS, namespace=entry.bound or given, name=name)
        case ApiCallEntry() if entry.outline:
            return _of_call(entry)
        case _:
            return None


def constant(template: Template | None) -> str:
    """Return a text without variables as it is, else the empty text."""
    if template is None or not template.constant:
        return ""
    return str(template.render(_NOTHING))


def _of_call(entry: ApiCallEntry) -> Right:
    meant = parse_path(segments(entry.outline))
    if meant is None:
        # Only values tell what it reads, within the namespace of a Policy.
        verb = "get" if entry.method == "GET" else "create"
        return Right(verb=verb, group=ANY, resource=ANY, namespace=entry.bound)
    verb = "create" if entry.method != "GET" else "get" if meant.name else "list"
    return Right(
        verb=verb,
        group=_known(meant.group, otherwise=ANY),
        resource=_known(meant.resource, otherwise=ANY),
        subresource=_known(meant.subresource, otherwise=ANY),
        namespace=entry.bound or _known(meant.namespace),
        name=_known(meant.name),
    )


def _known(text: str, *, otherwise: str = "") -> str:
    return otherwise if _VARIABLE in text else text


def _namespaces(namespace: Template | None, matcher: Matcher) -> tuple[str, ...]:
    if namespace is None:
        return _ALL
    if namespace.constant:
        text = constant(namespace)
        return _ALL if has_wildcard(text) else (text,)
    triggers = None
    if is_field(namespace, _OWN_NAMESPACE):
        triggers = matcher.namespaces
    elif is_field(namespace, _OWN_NAME) and _are_namespaces(matcher):
        triggers = matcher.names or matcher.namespaces
    return triggers if triggers and len(triggers) <= _MOST_NAMESPACES else _ALL


def _are_namespaces(matcher: Matcher) -> bool:
    return all(item.selector.kind == "Namespace" for item in matcher.kinds())


def is_field(template: Template | None, paths: frozenset[tuple[str, ...]]) -> bool:
    """Tell whether a template is one variable that gives one of these fields as it is."""
    if template is None or template.parts is None or len(template.parts) > 1:
        return False
    return (
        not template.constant and template.reads <= paths and not template.expressions[0].functions
    )


def _is_variable(template: Template | None) -> bool:
    return template is not None and not template.constant and not _is_open(template)


def _is_open(template: Template) -> bool:
    """Tell whether the policy's own text has a wildcard; what variables give never is one."""
    parts = template.parts or ()
    return any(isinstance(part, str) and has_wildcard(part) for part in parts)
