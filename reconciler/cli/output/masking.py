"""Masking of the content of Secrets in output: whole, in part, or computed from it."""

import base64
import binascii
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.entries import ApiCallEntry, Entry
from reconciler.dialects.kyverno.readers import of_entries
from reconciler.dialects.kyverno.template import Template
from reconciler.engine.confidential import may_hold_secrets
from reconciler.engine.loads import ApiLoad, ObjectLoad
from reconciler.errors import RetrofitError
from reconciler.languages.jmespath import Expression

HIDDEN: Final = "***"
_CONTENT: Final = ("data", "stringData")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SHORTEST: Final = 4
"""Characters; a shorter text is hidden only where it is the whole value."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The secret content that must not appear in output.

    Attributes:
        texts: The content of all Secrets, encoded and decoded, longest first.
        paths: The paths under which expressions read such content.
        called: Whether a context entry has read Secrets from the API server.
    """

    texts: tuple[str, ...] = ()
    paths: frozenset[Path] = field(default_factory=frozenset)
    called: bool = False

    def at(self, obj: Mapping[str, Any] | None, *roots: Path) -> "Mask":
        """Return the mask extended by an object bound at these roots, if it is a Secret."""
        if obj is None or not is_secret(obj):
            return self
        paths = self.paths | {(*root, part) for root in roots for part in _CONTENT}
        return replace(self.of((obj,)), paths=paths)

    def of(self, objects: Iterable[Mapping[str, Any]]) -> "Mask":
        """Return the mask extended by the Secrets among the objects."""
        texts = {text for obj in objects for text in _texts_of(obj)}
        return replace(self, texts=_sorted(texts.union(self.texts))) if texts else self

    def with_loads(self, loads: Mapping[Hashable, Any]) -> "Mask":
        """Return the mask extended by the Secrets among the results of context entries."""
        found = [
            answer
            for load, answer in loads.items()
            if isinstance(load, ApiLoad | ObjectLoad) and may_hold_secrets(load)
        ]
        if not found:
            return self
        texts = {text for answer in found for text in _contents(answer)}
        return replace(self, texts=_sorted({*self.texts, *texts}), called=True)

    def at_element(self, elements: Expression, depth: int) -> "Mask":
        """Return the mask for the elements of a list, which may hold the secrets of the list."""
        if not self.concerns(elements):
            return self
        return replace(self, paths=self.paths | {("element",), (f"element{depth}",)})

    def with_entries(self, entries: Iterable[Entry]) -> "Mask":
        """Return the mask extended by the context entries that may hold secret content."""
        mask = self
        for entry in entries:
            # Which call read Secrets is unknown, as its URL may hold variables: mask all.
            asks = isinstance(entry, ApiCallEntry) and mask.called
            if asks or any(mask.concerns(reader) for reader in of_entries((entry,))):
                mask = replace(mask, paths=mask.paths | {(entry.name,)})
        return mask

    def with_values(self, values: Iterable[Any]) -> "Mask | None":
        """Return the mask extended by these values, None where one is too short to be found."""
        found = {text for value in values for text in _scalars(value) if text}
        if any(len(text) < _SHORTEST for text in found):
            return None
        return replace(self, texts=_sorted(found.union(self.texts)))

    def concerns(self, reader: Template | Expression) -> bool:
        """Return whether the result of a reader may hold the content of a Secret."""
        return bool(self.paths) and (
            reader.dynamic
            or any(
                path[: len(hidden)] == hidden or hidden[: len(path)] == path
                for path in reader.reads
                for hidden in self.paths
            )
        )

    def hides(self, reader: Template | Expression) -> bool:
        """Return whether the result of a reader must be hidden completely.

        A whole object that no function computes with may be shown: `value` masks its content.
        """
        return self.concerns(reader) and (
            reader.dynamic
            or _computes(reader)
            or any(path[: len(hidden)] == hidden for path in reader.reads for hidden in self.paths)
        )

    def value(self, value: Any) -> Any:
        """Return a value without the content of Secrets."""
        if isinstance(value, str):
            return HIDDEN if value in self.texts else self.text(value)
        if isinstance(value, int | float) and json.dumps(value) in self.texts:
            return HIDDEN
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            hidden = _CONTENT if is_secret(value) else ()
            found = {
                self.text(key): _stars(item) if key in hidden else self.value(item)
                for key, item in value.items()
            }
            if hidden:
                _hide_applied(found)
            return found
        return value

    def text(self, text: str) -> str:
        """Return a text with the content of Secrets replaced."""
        for secret in self.texts:
            if len(secret) >= _SHORTEST:
                text = text.replace(secret, HIDDEN)
        return text

    def pair(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Object, Object]:
        """Return two masked states of an object that still show which parts differ."""
        old, new = self.value(dict(before)), self.value(dict(after))
        if is_secret(before):
            for part in _CONTENT:
                was, now = before.get(part), after.get(part)
                if not isinstance(was, dict) or not isinstance(now, dict):
                    continue
                for key in was.keys() & now.keys():
                    if was[key] != now[key]:
                        old[part][key], new[part][key] = f"{HIDDEN} (old)", f"{HIDDEN} (new)"
        return old, new


def mask_of(objects: Iterable[Mapping[str, Any]]) -> Mask:
    """Return the mask of all Secrets among the objects."""
    return Mask().of(objects)


def is_secret(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a Secret of Kubernetes."""
    return obj.get("kind") == "Secret" and obj.get("apiVersion", "v1") == "v1"


def _texts_of(obj: Mapping[str, Any]) -> Iterable[str]:
    for part in _CONTENT if is_secret(obj) else ():
        yield from _texts(obj.get(part))


def _contents(answer: Any) -> Iterable[str]:
    """Yield the content of Secrets in an API response; list items do not carry their kind."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from _texts(value) if key in _CONTENT else _contents(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from _contents(item)


def _hide_applied(secret: Mapping[str, Any]) -> None:
    # kubectl stores the content of the last apply in this annotation, in the clear.
    annotations = (secret.get("metadata") or {}).get("annotations") or {}
    if _APPLIED in annotations:
        annotations[_APPLIED] = HIDDEN


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _scalars(value: Any) -> Iterable[str]:
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _scalars(item)
    elif value is not None and not isinstance(value, RetrofitError):
        yield value if isinstance(value, str) else json.dumps(value)


def _texts(content: Any) -> Iterable[str]:
    for value in content.values() if isinstance(content, dict) else ():
        if isinstance(value, str) and value:
            yield value
            yield from filter(None, (_decoded(value),))


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _stars(content: Any) -> Any:
    return dict.fromkeys(content, HIDDEN) if isinstance(content, dict) else HIDDEN


def _computes(reader: Template | Expression) -> bool:
    expressions = reader.expressions if isinstance(reader, Template) else (reader,)
    return any(expression.functions for expression in expressions)
