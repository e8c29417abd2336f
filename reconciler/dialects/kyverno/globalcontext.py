"""Compilation of GlobalContextEntries: data that the controller keeps for all rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reconciler.api.globalcontext import KIND
from reconciler.api.meta import GROUPS, Object, split_api_version
from reconciler.dialects.kyverno import calls
from reconciler.dialects.kyverno.bounds import check_bounds
from reconciler.dialects.kyverno.entries import call_load
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine import reading
from reconciler.engine.loads import ApiLoad, ServiceLoad
from reconciler.engine.values import scalars
from reconciler.errors import ErrorList, EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import Expression, compile_expression

_SPEC_FIELDS = ("kubernetesResource", "apiCall", "projections")
_RESOURCE_FIELDS = ("group", "version", "resource", "namespace")
_CALL_FIELDS = (*calls.FIELDS, "refreshInterval", "retryLimit")
_INTERVAL = "10m"
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSource:
    """All objects of a resource; an empty namespace means all namespaces."""

    group: str
    version: str
    resource: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSource:
    """The response of a call that is repeated periodically.

    Attributes:
        interval: Seconds from one call to the next.
        tries: Failed calls in a row until a refresh counts as failed.
    """

    load: ApiLoad | ServiceLoad
    interval: float
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledEntry:
    """A compiled GlobalContextEntry.

    Attributes:
        projections: Expressions for parts of the data, by name.
        warnings: Warnings for its author.
    """

    name: str
    source: ResourceSource | CallSource
    projections: Mapping[str, Expression]
    warnings: tuple[str, ...] = ()


def compile_entry(entry: Object) -> CompiledEntry:
    """Return the compiled form of a GlobalContextEntry.

    Raises:
        InvalidPolicy: The entry is invalid; it holds all errors with their locations.
    """
    api_version, kind = str(entry.get("apiVersion", "")), str(entry.get("kind", ""))
    if split_api_version(api_version)[0] not in GROUPS or kind != KIND:
        known = " or ".join(GROUPS)
        raise InvalidPolicy("kind", f"{api_version} {kind} is not a {KIND} of {known}")
    meta = entry.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise InvalidPolicy("metadata", "expected an object with a name")
    name = str(meta.get("name", ""))
    with ErrorList() as errors:
        check_bounds(entry.get("spec"))
        return _compile(entry, name, errors)


def _compile(entry: Object, name: str, errors: ErrorList) -> CompiledEntry:
    spec = reading.mapping(entry.get("spec"), "spec", allowed=_SPEC_FIELDS, errors=errors)
    found = [field for field in _SPEC_FIELDS[:2] if spec.get(field) is not None]
    if len(found) != 1:
        raise InvalidPolicy(
            "spec", f"exactly one of kubernetesResource and apiCall is needed, found {len(found)}"
        )
    source = errors.attempt(_source, found[0], spec[found[0]])
    projections = _projections(spec.get("projections"), name)
    if source is None:
        raise errors.combined()
    return CompiledEntry(
        name=name, source=source, projections=projections, warnings=_warnings(name)
    )


def _source(form: str, raw: Any) -> ResourceSource | CallSource:
    read = _resource if form == "kubernetesResource" else _call
    return read(raw, f"spec.{form}")


def _resource(raw: Any, place: str) -> ResourceSource:
    with ErrorList() as errors:
        fields = reading.mapping(raw, place, allowed=_RESOURCE_FIELDS, errors=errors)
        texts = {
            field: errors.attempt(_exact, fields.get(field), f"{place}.{field}") or ""
            for field in _RESOURCE_FIELDS
        }
        for field in ("version", "resource"):
            if not fields.get(field):
                errors.add(InvalidPolicy(f"{place}.{field}", f"a {field} is needed"))
        if texts["version"] and not fields.get("group") and texts["version"] != "v1":
            reason = f"the core group has no version {texts['version']}"
            errors.add(InvalidPolicy(f"{place}.group", reason))
        if texts["resource"] != texts["resource"].lower():
            reason = "use the plural name of the API, such as deployments for Deployment"
            errors.add(InvalidPolicy(f"{place}.resource", reason))
    return ResourceSource(**texts)


def _exact(raw: Any, place: str) -> str:
    text = _text(raw, place)
    if "*" in text or "/" in text:
        raise InvalidPolicy(place, f"{text} is not an exact name")
    return text


def _call(raw: Any, place: str) -> CallSource:
    with ErrorList() as errors:
        fields = reading.mapping(raw, place, allowed=_CALL_FIELDS, errors=errors)
        every = errors.attempt(
            _interval, fields.get("refreshInterval"), f"{place}.refreshInterval"
        )
        tries = errors.attempt(_tries, fields.get("retryLimit"), f"{place}.retryLimit")
        load = _load(fields, place)
        if every is None or tries is None:
            raise errors.combined()
    return CallSource(load=load, interval=every, tries=tries)


def _load(fields: Mapping[str, Any], place: str) -> ApiLoad | ServiceLoad:
    path, service = _text(fields.get("urlPath"), f"{place}.urlPath"), fields.get("service")
    if bool(path) == (service is not None):
        raise InvalidPolicy(place, "either a urlPath or a service is needed")
    if path and not path.startswith("/"):
        raise InvalidPolicy(f"{place}.urlPath", "must begin with /")
    with ErrorList() as errors:
        if service is not None:
            errors.attempt(_check_service, service, f"{place}.service")
        method = errors.attempt(calls.method, fields, place)
        errors.attempt(_check_pairs, fields.get("data"), f"{place}.data")
        if fields.get("data") is not None and method == "GET":
            reason = "data is sent only with the method POST"
            errors.add(InvalidPolicy(f"{place}.method", reason))
    try:
        return call_load({key: fields.get(key) for key in calls.FIELDS}, place)
    except EvaluationError as error:
        raise InvalidPolicy(place, str(error)) from error


def _check_service(raw: Any, place: str) -> None:
    fields = calls.service(raw, place)
    if not _text(fields.get("url"), f"{place}.url"):
        raise InvalidPolicy(f"{place}.url", "a url is needed")
    _text(fields.get("caBundle"), f"{place}.caBundle")
    _check_pairs(fields.get("headers"), f"{place}.headers")
    calls.headers(fields.get("headers"), f"{place}.headers")


def _check_pairs(raw: Any, place: str) -> None:
    for where, fields in calls.pairs(raw, place):
        if not _text(fields.get("key"), f"{where}.key"):
            raise InvalidPolicy(f"{where}.key", "a key is needed")


def _interval(raw: Any, place: str) -> float:
    found = scalars.parse_duration(raw) if isinstance(raw, str) else None
    found = scalars.parse_duration(_INTERVAL) if raw is None else found
    if found is None or found <= 0:
        raise InvalidPolicy(place, "expected a duration above zero, as 30s, 10m or 1h30m")
    # Calls are made at most once a second.
    return max(1.0, found / scalars.SECOND)


def _tries(raw: Any, place: str) -> int:
    if raw is None:
        return _TRIES
    if type(raw) is not int or raw < 1:
        raise InvalidPolicy(place, "expected a whole number, at least 1")
    return raw


def _projections(raw: Any, entry: str) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    read = partial(_projection, entry=entry, found=found)
    reading.each(read, raw, "spec.projections")
    return found


def _projection(raw: Any, place: str, *, entry: str, found: dict[str, Expression]) -> None:
    fields = reading.mapping(raw, place, allowed=("name", "jmesPath"))
    name = _text(fields.get("name"), f"{place}.name")
    path = fields.get("jmesPath")
    if not name:
        raise InvalidPolicy(f"{place}.name", "a name is needed")
    if name == entry:
        raise InvalidPolicy(f"{place}.name", "the name must differ from that of the entry")
    if name in found:
        raise InvalidPolicy(f"{place}.name", f"the name {name} is used twice")
    if not isinstance(path, str) or not path:
        raise InvalidPolicy(f"{place}.jmesPath", "an expression is needed")
    found[name] = compile_expression(path, location=f"{place}.jmesPath")


def _warnings(name: str) -> tuple[str, ...]:
    if "." not in name:
        return ()
    head = name.partition(".")[0]
    text = f"no rule can read {name}: the part after the dot names a projection of {head}"
    return (f"metadata.name: {text}",)


def _text(raw: Any, place: str) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise InvalidPolicy(place, "expected a string")
    if not compile_template(raw, location=place).constant:
        raise InvalidPolicy(
            place, "variables are not allowed here, because all rules share the entry"
        )
    return raw
