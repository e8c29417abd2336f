"""Context entries of a rule, a target or a foreach: named data, evaluated only when it is read.

An entry that needs data from outside raises `NeedsLoad`. The caller of the engine reads it through
a port, adds it to the context's loads and evaluates again. So the engine does no I/O, and an entry
that no expression uses is never fetched.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.paths import segments
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.context import Context
from reconciler.engine.loads import ApiLoad, ConfigMapLoad, GlobalLoad, ServiceLoad, answer_to
from reconciler.engine.values.addresses import (
    check_header,
    check_name,
    check_own_service,
    join_path,
    join_url,
)
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import Expression, compile_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableEntry:
    """A value, a path into it or into the context, and a default."""

    name: str
    value: Template | None
    path: Template | None
    default: Template | None

    def evaluate(self, context: Context) -> Any:
        """Return the value, which must not be null."""
        default = None if self.default is None else self.default.render(context)
        value = None if self.value is None else self.value.render(context)
        found = value if self.path is None else self._search(self.path, context, value, default)
        if found is None and self.value is None:
            found = default
        if found is None:
            msg = f"failed to add context entry for variable {self.name} since it evaluated to nil"
            raise EvaluationError(msg).bare("it evaluated to nil")
        return found

    def _search(self, path: Template, context: Context, value: Any, default: Any) -> Any:
        expression = _expression(path, context, self.name)
        try:
            if self.value is None:
                return context.search(expression)
            return expression.search(value, context.allowance)
        except EvaluationError as error:
            if default is not None:
                return default
            raise EvaluationError(
                f"failed to apply jmespath {expression.source} to variable {self.name}: {error}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapEntry:
    """The data of a ConfigMap.

    Attributes:
        home: The default namespace: that of a namespaced policy, else ``default``.
        bound: The only allowed namespace; empty for a cluster-wide policy.
    """

    name: str
    config_map: Template
    namespace: Template | None
    home: str
    bound: str

    def evaluate(self, context: Context) -> Any:
        """Return ``{data, metadata}``."""
        name = _text(self.config_map, context)
        namespace = "" if self.namespace is None else _text(self.namespace, context)
        if self.bound and namespace not in ("", self.bound):
            raise EvaluationError(
                f'context entry {self.name}: configMap namespace "{namespace}" is different from'
                f' policy namespace "{self.bound}"'
            )
        place = f"context entry {self.name}: configMap"
        load = ConfigMapLoad(
            namespace=check_name(namespace or self.home, f"{place} namespace"),
            name=check_name(name, f"{place} name"),
        )
        failing = f"failed to retrieve config map for context entry {self.name}"
        return answer_to(load, context.loads, failing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCallEntry:
    """The response of the API server or of an HTTP service.

    Attributes:
        address: The urlPath, or the url of the service.
        call: ``{service, method, data}`` as written, without the address.
        path: A JMESPath into the response.
        default: The result of a call that failed; variables in it are not substituted.
        bound: The namespace that the path must name; empty for a cluster-wide policy.
        method: Of the call.
        outline: ``urlPath`` with ``{}`` in place of variables; empty for a service.
    """

    name: str
    address: Template
    call: Template
    path: Template | None
    default: Any
    bound: str
    method: str = "GET"
    outline: str = ""

    def evaluate(self, context: Context) -> Any:
        """Return the response, or the part of it that the path selects."""
        load = call_load(self._call(context), f"context entry {self.name}", bound=self.bound)
        if isinstance(load, ApiLoad):
            load = replace(load, made_of_values=_hides_resource(self.outline))
        try:
            found = answer_to(load, context.loads, f"failed to execute APICall {self.name}")
        except EvaluationError:
            if self.default is not None:
                return self.default
            raise
        return _part(found, self.path, context, self.name)

    def _call(self, context: Context) -> Mapping[str, Any]:
        call = self.call.render(context)
        service = call.get("service")
        field, join = ("urlPath", join_path) if service is None else ("url", join_url)
        try:
            address = join(self.address.pieces(context))
        except EvaluationError as error:
            msg = f"context entry {self.name}: {field}: {error}"
            raise EvaluationError(msg).bare(f"{field}: {error.without_values}") from error
        if service is not None:
            check_own_service(address, self.bound)
            return {**call, "service": {**service, "url": address}}
        _check_path(address, self.bound)
        return {**call, "urlPath": address}


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalEntry:
    """The data of a GlobalContextEntry, which another component keeps up to date."""

    name: str
    reference: Template
    path: Template | None

    def evaluate(self, context: Context) -> Any:
        """Return the data, or the part of it that the path selects."""
        load = GlobalLoad(name=_text(self.reference, context))
        found = answer_to(load, context.loads, f"failed to fetch entry key={load.name}")
        return _part(found, self.path, context, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementEntry:
    """Values for the elements of a foreach that the caller provides in place of an entry.

    Attributes:
        values: By ``elementIndex``.
    """

    name: str
    values: tuple[Any, ...]

    def evaluate(self, context: Context) -> Any:
        """Return the value of the current element."""
        index: int = context.data["elementIndex"]
        if index >= len(self.values):
            raise EvaluationError(
                f"foreachValues has {len(self.values)} values for {self.name}, but the list has an"
                f" element {index}"
            )
        return self.values[index]


Entry = VariableEntry | ConfigMapEntry | ApiCallEntry | GlobalEntry | ElementEntry


def _hides_resource(outline: str) -> bool:
    """Return whether a path with ``{}`` for variables has a variable group or resource."""
    root, *parts = outline.partition("?")[0].strip("/").split("/")
    rest = parts[1:] if root == "api" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - its name, and a resource
        rest = rest[2:]
    return any("{}" in part for part in (root, *parts[:1], *rest[:1]))


def call_load(call: Mapping[str, Any], place: str, *, bound: str = "") -> ApiLoad | ServiceLoad:
    """Return the load of a call without variables.

    Args:
        call: ``{urlPath | service, method, data}``.
        place: What contains the call, for messages.
        bound: The namespace of a Policy, whose Services alone may be called; else empty.

    Raises:
        EvaluationError: Data or headers are no list of key and value, or a policy must not set a
            header.
    """
    method = call.get("method") or "GET"
    pairs = _pairs(call.get("data"), f"{place}: data")
    body = json.dumps(pairs, sort_keys=True) if method == "POST" else ""
    service = call.get("service")
    if service is None:
        return ApiLoad(method=method, path=str(call.get("urlPath") or ""), body=body)
    headers = _pairs(service.get("headers"), f"{place}: headers")
    for name, value in headers.items():
        check_header(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            # The value may be secret, and so may be its type.
            raise EvaluationError(f"{place}: the header {name} must be a string or a number")
    return ServiceLoad(
        method=method,
        url=str(service.get("url") or ""),
        body=body,
        headers=tuple((key, str(value)) for key, value in headers.items()),
        namespace=bound,
        ca_bundle=str(service.get("caBundle") or ""),
    )


def with_entries(context: Context, entries: Iterable[Entry]) -> Context:
    """Return a context with the entries; each can use only those declared before it."""
    for entry in entries:
        context = context.defer(entry.name, _bound(entry, context))
    return context


def _bound(entry: Entry, context: Context) -> Any:
    def evaluate() -> Any:
        try:
            return entry.evaluate(context)
        except EvaluationError as error:
            error.bare(f"context entry {entry.name}: {error.without_values}")
            raise

    return evaluate


def _part(found: Any, path: Template | None, context: Context, name: str) -> Any:
    if path is None:
        return found
    return _expression(path, context, name).search(found, context.allowance)


def _expression(path: Template, context: Context, name: str) -> Expression:
    source = _text(path, context)
    try:
        return compile_expression(source, location=name)
    except InvalidPolicy as error:
        raise EvaluationError(str(error)) from error


def _text(template: Template, context: Context) -> str:
    value = template.render(context)
    if not isinstance(value, str):
        raise EvaluationError(f"expected a string in a context entry, got {type(value).__name__}")
    return value


def _pairs(raw: Any, place: str) -> dict[str, Any]:
    items = raw or ()
    if not isinstance(items, list | tuple) or not all(
        isinstance(item, dict) and isinstance(item.get("key"), str) for item in items
    ):
        raise EvaluationError(f"{place}: expected a list of key and value")
    return {item["key"]: item.get("value") for item in items}


def _check_path(path: str, bound: str) -> None:
    if not bound:
        return
    # Decoded as the API server does, so that no encoding can disguise a path.
    parts = segments(path)
    if ".." in parts or "." in parts:
        raise EvaluationError(f"path {path} must not contain dots as a part")
    start = {"api": 2, "apis": 3}.get(parts[0]) if parts else None
    place = [] if start is None else parts[start : start + 2]
    if len(place) < 2 or place[0] != "namespaces":  # noqa: PLR2004 - the word and the name
        raise EvaluationError(
            f"path {path} does not contain a namespace segment, which is required for namespaced"
            " policies"
        )
    if place[1] != bound:
        raise EvaluationError(
            f"path {path} refers to namespace {place[1]}, which is different from the policy"
            f" namespace {bound}"
        )
