"""Context entries of a rule, a target or a foreach."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reconciler.dialects.kyverno import calls
from reconciler.dialects.kyverno.entries import (
    ApiCallEntry,
    ConfigMapEntry,
    Entry,
    GlobalEntry,
    VariableEntry,
)
from reconciler.dialects.kyverno.readers import reads_any
from reconciler.dialects.kyverno.template import Template
from reconciler.dialects.kyverno.variables import (
    REQUEST,
    Scope,
    check_expression,
    checked_template,
)
from reconciler.engine import reading
from reconciler.engine.program import Origin
from reconciler.engine.values.addresses import Piece, check_own_service, join_path, join_url
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import braces, compile_expression

_SOURCES = ("variable", "configMap", "apiCall", "imageRegistry", "globalReference")
RESERVED = REQUEST | {"element", "elementIndex", "target"}
_CALL_FIELDS = (*calls.FIELDS, "jmesPath", "default")


def compile_entries(
    raw: Any, location: str, scope: Scope, origin: Origin, errors: ErrorList
) -> tuple[tuple[Entry, ...], Scope]:
    """Return the entries and the scope after them; each may use those before it.

    Args:
        scope: The names that are known before the list.
        errors: Collects the errors. The name of an entry with an error is still in the scope, so
            that its readers cause no further errors.
    """
    entries: list[Entry] = []
    for index, item in enumerate(errors.attempt(reading.sequence, raw, location) or ()):
        place = f"{location}[{index}]"
        fields = errors.attempt(
            reading.mapping, item, place, allowed=("name", *_SOURCES), errors=errors
        )
        name = fields and errors.attempt(_name, fields, place)
        if not fields or not name:
            continue
        entry = errors.attempt(_entry, name, fields, place, scope=scope, origin=origin)
        if entry is not None:
            entries.append(entry)
        if name not in scope.given or fields.get("variable") is not None:
            later = scope.of_target | {"target"}
            of_target = entry is not None and reads_any(entry, later)
            scope = scope.with_entry(name, of_target=of_target)
    return tuple(entries), scope


def _name(fields: Mapping[str, Any], place: str) -> str:
    name = reading.string(fields.get("name"), f"{place}.name")
    root = name.partition(".")[0]
    if root in RESERVED:
        reason = f"entry name {name} is invalid as it conflicts with a pre-defined variable {root}"
        raise InvalidPolicy(f"{place}.name", reason)
    return name


def _entry(
    name: str, fields: Mapping[str, Any], place: str, *, scope: Scope, origin: Origin
) -> Entry | None:
    """Return the entry, None where the caller provides its value."""
    found = [source for source in _SOURCES if fields.get(source) is not None]
    if len(found) != 1:
        known = ", ".join(_SOURCES)
        raise InvalidPolicy(place, f"exactly one of {known} is needed, found {len(found)}")
    source = found[0]
    if name in scope.given and source != "variable":
        return None
    return _of_source(source, name, fields[source], f"{place}.{source}", scope, origin)


def _of_source(  # noqa: PLR0917 - one per kind of source takes the same
    source: str, name: str, raw: Any, place: str, scope: Scope, origin: Origin
) -> Entry:
    match source:
        case "variable":
            return _variable(name, raw, place, scope)
        case "configMap":
            return _config_map(name, raw, place, scope, origin)
        case "apiCall":
            return _api_call(name, raw, place, scope, origin)
        case "globalReference":
            return _global(name, raw, place, scope, origin)
        case _:
            raise InvalidPolicy(
                place, "images are not read from a registry here; give the value as a variable"
            )


def _variable(name: str, raw: Any, place: str, scope: Scope) -> VariableEntry:
    fields = reading.mapping(raw, place, allowed=("value", "jmesPath", "default"))
    if fields.get("value") is None and not fields.get("jmesPath"):
        raise InvalidPolicy(place, "a variable must define a value or a jmesPath expression")
    if fields.get("default") is not None and not fields.get("jmesPath"):
        raise InvalidPolicy(
            place,
            "a variable must define a default value only when a jmesPath expression is defined",
        )
    with ErrorList() as errors:
        value = errors.attempt(_optional, fields, "value", place, scope)
        path = errors.attempt(_path, fields, place, scope, of_context=fields.get("value") is None)
        default = errors.attempt(_optional, fields, "default", place, scope)
    return VariableEntry(name=name, value=value, path=path, default=default)


def _config_map(name: str, raw: Any, place: str, scope: Scope, origin: Origin) -> ConfigMapEntry:
    fields = reading.mapping(raw, place, allowed=("name", "namespace"))
    config_map = _optional(fields, "name", place, scope)
    if config_map is None:
        raise InvalidPolicy(f"{place}.name", "a name is required for configMap context entry")
    return ConfigMapEntry(
        name=name,
        config_map=config_map,
        namespace=_optional(fields, "namespace", place, scope),
        home=origin.namespace or "default",
        bound=origin.namespace,
    )


def _api_call(name: str, raw: Any, place: str, scope: Scope, origin: Origin) -> ApiCallEntry:
    with ErrorList() as errors:
        fields = reading.mapping(raw, place, allowed=_CALL_FIELDS, errors=errors)
        service = fields.get("service")
        if service is not None:
            errors.attempt(_check_service, service, f"{place}.service")
            if fields.get("urlPath"):
                errors.add(InvalidPolicy(place, "a URLPath cannot be used for service API calls"))
        elif not fields.get("urlPath"):
            errors.add(InvalidPolicy(place, "a urlPath or a service is needed"))
        method = errors.attempt(calls.method, fields, place)
        address = errors.attempt(_address, fields, place, scope, origin.namespace)
        template = errors.attempt(checked_template, _without_address(fields), place, scope)
        path = _path(fields, place, scope, of_context=False)
        if template is None or address is None:
            raise errors.combined()
    return ApiCallEntry(
        name=name,
        address=address,
        call=template,
        path=path,
        default=fields.get("default"),
        bound=origin.namespace,
        method=method or "GET",
        outline=braces.replace(str(fields.get("urlPath") or ""), lambda _: "{}"),
    )


def _address(fields: Mapping[str, Any], place: str, scope: Scope, namespace: str) -> Template:
    service = fields.get("service")
    if service is None:
        template = checked_template(fields.get("urlPath") or "", f"{place}.urlPath", scope)
        _check_address(template, f"{place}.urlPath", join_path, "x")
        return template
    url = service.get("url") if isinstance(service, Mapping) else None
    template = checked_template(url or "", f"{place}.service.url", scope)
    _check_address(template, f"{place}.service.url", join_url, "http://x")
    if template.constant:
        try:
            check_own_service(str(url or ""), namespace)
        except EvaluationError as error:
            raise InvalidPolicy(f"{place}.service.url", str(error)) from error
    return template


def _check_address(
    template: Template, place: str, join: Callable[[Iterable[Piece]], str], first: str
) -> None:
    """Refuse a variable where no value can be safe; with `first` a value at the beginning is."""
    if template.parts is None:
        raise InvalidPolicy(place, "expected a string")
    samples = [
        (part, False) if isinstance(part, str) else ("x" if index else first, True)
        for index, part in enumerate(template.parts)
    ]
    try:
        join(samples)
    except EvaluationError as error:
        raise InvalidPolicy(place, str(error)) from error


def _without_address(fields: Mapping[str, Any]) -> dict[str, Any]:
    call = {key: fields[key] for key in calls.FIELDS if key in fields and key != "urlPath"}
    if isinstance(call.get("service"), Mapping):
        call["service"] = {key: part for key, part in call["service"].items() if key != "url"}
    return call


def _check_service(raw: Any, place: str) -> None:
    fields = calls.service(raw, place)
    calls.headers(fields.get("headers"), f"{place}.headers")


def _global(name: str, raw: Any, place: str, scope: Scope, origin: Origin) -> GlobalEntry:
    if origin.policy.kind == "Policy":
        raise InvalidPolicy(
            place,
            "a Policy may not read a GlobalContextEntry, which may hold data of other namespaces;"
            " use a ClusterPolicy, or a configMap or apiCall of the namespace",
        )
    fields = reading.mapping(raw, place, allowed=("name", "jmesPath"))
    reference = _optional(fields, "name", place, scope)
    if reference is None:
        raise InvalidPolicy(
            f"{place}.name", "a name is required for globalReference context entry"
        )
    path = _path(fields, place, scope, of_context=False)
    return GlobalEntry(name=name, reference=reference, path=path)


def _optional(fields: Mapping[str, Any], field: str, place: str, scope: Scope) -> Template | None:
    value = fields.get(field)
    return None if value is None else checked_template(value, f"{place}.{field}", scope)


def _path(
    fields: Mapping[str, Any], place: str, scope: Scope, *, of_context: bool
) -> Template | None:
    text = fields.get("jmesPath")
    if not text:
        return None
    if not isinstance(text, str):
        raise InvalidPolicy(f"{place}.jmesPath", "expected a string")
    template = checked_template(text, f"{place}.jmesPath", scope)
    if template.constant:
        expression = compile_expression(text, location=f"{place}.jmesPath")
        if of_context:
            check_expression(expression, f"{place}.jmesPath", scope.of_path())
    return template
