"""The rights that the targets and context entries of a rule need, as far as its text shows.

Where a namespace or name is a variable, whose value depends on the trigger, the right is for all
namespaces or for any object.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reconciler.api.meta import CONFIG_MAPS
from reconciler.api.paths import parse_path, segments
from reconciler.api.rights import ANY, Right, TargetNeed
from reconciler.dialects.kyverno.entries import ApiCallEntry, ConfigMapEntry, Entry
from reconciler.dialects.kyverno.globalcontext import CallSource, ResourceSource
from reconciler.dialects.kyverno.match import Matcher
from reconciler.dialects.kyverno.targets import Target
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import NOTHING_BOUND
from reconciler.engine.loads import ApiLoad
from reconciler.engine.values.wildcard import has_wildcard

_VARIABLE = "{}"
_OWN_NAMESPACE = (
    "request.namespace",
    "request.object.metadata.namespace",
    "request.oldObject.metadata.namespace",
)
OWN_NAME = ("request.name", "request.object.metadata.name", "request.oldObject.metadata.name")
_MOST_NAMESPACES = 20
_ALL = ("",)


def target_need(target: Target, matcher: Matcher, *, namespace: str) -> TargetNeed:
    """Return the rights that a target needs.

    Args:
        matcher: Of its rule; it limits the namespaces of a target in the trigger's namespace.
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


def source_rights(source: ResourceSource | CallSource) -> Iterator[Right]:
    """Yield the rights that are needed to keep the data of a GlobalContextEntry."""
    if isinstance(source, ResourceSource):
        for verb in ("list", "watch"):
            yield Right(
                verb=verb,
                group=source.group,
                resource=source.resource,
                namespace=source.namespace,
            )
    elif isinstance(source.load, ApiLoad):
        right = _of_path(source.load.path, source.load.method)
        if right is not None:
            yield right


def constant(template: Template | None) -> str:
    """Return the text of a template without variables, else the empty text."""
    if template is None or not template.constant:
        return ""
    return str(template.render(NOTHING_BOUND))


def _of_call(entry: ApiCallEntry) -> Right:
    right = _of_path(entry.outline, entry.method)
    if right is None:
        # Only the values of variables decide what it reads, within the namespace of a Policy.
        verb = "get" if entry.method == "GET" else "create"
        return Right(verb=verb, group=ANY, resource=ANY, namespace=entry.bound)
    return replace(right, namespace=entry.bound or right.namespace)


def _of_path(path: str, method: str) -> Right | None:
    """Return the right that a path needs, which has ``{}`` in place of variables."""
    meant = parse_path(segments(path))
    if meant is None:
        return None
    verb = "create" if method != "GET" else "get" if meant.name else "list"
    return Right(
        verb=verb,
        group=_known(meant.group, otherwise=ANY),
        resource=_known(meant.resource, otherwise=ANY),
        subresource=_known(meant.subresource, otherwise=ANY),
        namespace=_known(meant.namespace),
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
    elif is_field(namespace, OWN_NAME) and _are_namespaces(matcher):
        triggers = matcher.names or matcher.namespaces
    return triggers if triggers and len(triggers) <= _MOST_NAMESPACES else _ALL


def _are_namespaces(matcher: Matcher) -> bool:
    return all(item.selector.kind == "Namespace" for item in matcher.kinds())


def is_field(template: Template | None, fields: Sequence[str]) -> bool:
    """Return whether a template is a single variable with the unchanged value of one of fields."""
    if template is None or template.parts is None or len(template.parts) > 1:
        return False
    # Any other expression may yield another value, even if it reads nothing else.
    return any(one.source.strip() in fields for one in template.expressions)


def _is_variable(template: Template | None) -> bool:
    return template is not None and not template.constant and not _is_open(template)


def _is_open(template: Template) -> bool:
    """Return whether the policy's own text has a wildcard; values of variables never are one."""
    parts = template.parts or ()
    return any(isinstance(part, str) and has_wildcard(part) for part in parts)
