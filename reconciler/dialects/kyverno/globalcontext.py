"""GlobalContextEntry of kyverno.io: data that is kept at hand for the rules that name it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.globalcontext import KIND
from reconciler.api.meta import GROUP, Object
from reconciler.dialects.kyverno import calls
from reconciler.engine import scalars
from reconciler.engine.entries import ApiLoad, ServiceLoad, call_load
from reconciler.engine.jmes import Expression, compile_expression
from reconciler.engine.match import reading
from reconciler.engine.variables import compile_template
from reconciler.errors import EvaluationError, InvalidPolicy

_SPEC_FIELDS = ("kubernetesResource", "apiCall", "projections")
_RESOURCE_FIELDS = ("group", "version", "resource", "namespace")
_CALL_FIELDS = (*calls.FIELDS, "refreshInterval", "retryLimit")
_INTERVAL = "10m"
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSource:
    """All objects of a resource; an empty namespace means everywhere."""

    group: str
    version: str
    resource: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSource:
    """The answer of a call that is made again and again.

    Attributes:
        interval: Seconds from one call to the next.
        tries: Calls in a row until a refresh counts as failed.
    """

    load: ApiLoad | ServiceLoad
    interval: float
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledEntry:
    """An entry that can be kept.

    Attributes:
        projections: Parts of the data by name.
        warnings: What its author should know.
    """

    name: str
    source: ResourceSource | CallSource
    projections: Mapping[str, Expression]
    warnings: tuple[str, ...] = ()


def compile_entry(entry: Object) -> CompiledEntry:
    """Return the compiled form of a GlobalContextEntry.

    Raises:
        InvalidPolicy: It cannot be kept; the first place that is wrong.
    """
    api_version, kind = str(entry.get("apiVersion", "")), str(entry.get("kind", ""))
    if not api_version.startswith(f"{GROUP}/") or kind != KIND:
        raise InvalidPolicy("kind", f"{api_version} {kind} is no {KIND} of {GROUP}")
    meta = entry.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise InvalidPolicy("metadata", "expected an object with a name")
    name = str(meta.get("name", ""))
    spec = reading.mapping(entry.get("spec"), "spec", allowed=_SPEC_FIELDS)
    found = [field for field in _SPEC_FIELDS[:2] if spec.get(field) is not None]
    if len(found) != 1:
        raise InvalidPolicy(
            "spec", f"exactly one of kubernetesResource and apiCall is needed, found {len(found)}"
        )
    place = f"spec.{found[0]}"
    read = _resource if found[0] == "kubernetesResource" else _call
    return CompiledEntry(
        name=name,
        source=read(spec[found[0]], place),
        projections=_projections(spec.get("projections"), name),
        warnings=_warnings(name),
    )


def _resource(raw: Any, place: str) -> ResourceSource:
    fields = reading.mapping(raw, place, allowed=_RESOURCE_FIELDS)
    texts = {field: _text(fields.get(field), f"{place}.{field}") for field in _RESOURCE_FIELDS}
    for field in ("version", "resource"):
        if not texts[field]:
            raise InvalidPolicy(f"{place}.{field}", f"a {field} is needed")
    if not texts["group"] and texts["version"] != "v1":
        raise InvalidPolicy(f"{place}.group", f"the core group has no version {texts['version']}")
    for field, text in texts.items():
        if "*" in text or "/" in text:
            raise InvalidPolicy(f"{place}.{field}", f"{text} is no exact name")
    if texts["resource"] != texts["resource"].lower():
        raise InvalidPolicy(
            f"{place}.resource", "write the plural as the API has it, deployments for Deployment"
        )
    return ResourceSource(**texts)


def _call(raw: Any, place: str) -> CallSource:
    fields = reading.mapping(raw, place, allowed=_CALL_FIELDS)
    path, service = _text(fields.get("urlPath"), f"{place}.urlPath"), fields.get("service")
    if bool(path) == (service is not None):
        raise InvalidPolicy(place, "either a urlPath or a service is needed")
    if path and not path.startswith("/"):
        raise InvalidPolicy(f"{place}.urlPath", "it begins with /")
    if service is not None:
        _check_service(service, f"{place}.service")
    method = calls.method(fields, place)
    _check_pairs(fields.get("data"), f"{place}.data")
    if fields.get("data") is not None and method != "POST":
        raise InvalidPolicy(f"{place}.method", "data is sent only with the method POST")
    call = {key: fields.get(key) for key in calls.FIELDS}
    try:
        load = call_load(call, place)
    except EvaluationError as error:
        raise InvalidPolicy(place, str(error)) from error
    return CallSource(
        load=load,
        interval=_interval(fields.get("refreshInterval"), f"{place}.refreshInterval"),
        tries=_tries(fields.get("retryLimit"), f"{place}.retryLimit"),
    )


def _check_service(raw: Any, place: str) -> None:
    fields = calls.service(raw, place)
    if not _text(fields.get("url"), f"{place}.url"):
        raise InvalidPolicy(f"{place}.url", "a url is needed")
    _text(fields.get("caBundle"), f"{place}.caBundle")
    _check_pairs(fields.get("headers"), f"{place}.headers")


def _check_pairs(raw: Any, place: str) -> None:
    for where, fields in calls.pairs(raw, place):
        if not _text(fields.get("key"), f"{where}.key"):
            raise InvalidPolicy(f"{where}.key", "a key is needed")


def _interval(raw: Any, place: str) -> float:
    found = scalars.parse_duration(raw) if isinstance(raw, str) else None
    found = scalars.parse_duration(_INTERVAL) if raw is None else found
    if found is None or found <= 0:
        raise InvalidPolicy(place, "expected a duration above zero, as 30s, 10m or 1h30m")
    # More often than once a second nobody is asked.
    return max(1.0, found / scalars.SECOND)


def _tries(raw: Any, place: str) -> int:
    if raw is None:
        return _TRIES
    if type(raw) is not int or raw < 1:
        raise InvalidPolicy(place, "expected a number from 1")
    return raw


def _projections(raw: Any, entry: str) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for index, item in enumerate(reading.sequence(raw, "spec.projections")):
        place = f"spec.projections[{index}]"
        fields = reading.mapping(item, place, allowed=("name", "jmesPath"))
        name = _text(fields.get("name"), f"{place}.name")
        path = fields.get("jmesPath")
        if not name:
            raise InvalidPolicy(f"{place}.name", "a name is needed")
        if name == entry:
            raise InvalidPolicy(f"{place}.name", "a name other than that of the entry is needed")
        if name in found:
            raise InvalidPolicy(f"{place}.name", f"{name} stands there twice")
        if not isinstance(path, str) or not path:
            raise InvalidPolicy(f"{place}.jmesPath", "an expression is needed")
        found[name] = compile_expression(path, location=f"{place}.jmesPath")
    return found


def _warnings(name: str) -> tuple[str, ...]:
    if "." not in name:
        return ()
    head = name.partition(".")[0]
    text = f"no rule can read {name}: what follows a dot names a projection of {head}"
    return (f"metadata.name: {text}",)


def _text(raw: Any, place: str) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise InvalidPolicy(place, "expected a text")
    if not compile_template(raw, location=place).constant:
        raise InvalidPolicy(place, "an entry is kept for all rules, so it has no variables")
    return raw
