"""Baselines: files that list the objects a preview must change, and their comparison."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.cli.desk.emit import render_yaml
from reconciler.cli.desk.files import read_all
from reconciler.errors import InvalidSetting
from reconciler.services.preview.dryrun import Identity

KIND: Final = "PreviewBaseline"
_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "subresource")
_NEEDED: Final = ("apiVersion", "kind", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between a preview and a baseline.

    Attributes:
        missing: Objects of the baseline that would not be changed.
        unexpected: Objects that would be changed, but are not in the baseline.
    """

    missing: tuple[Identity, ...]
    unexpected: tuple[Identity, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare(expected: AbstractSet[Identity], actual: AbstractSet[Identity]) -> Difference:
    """Return the difference, sorted."""
    return Difference(
        missing=tuple(sorted(expected - actual)), unexpected=tuple(sorted(actual - expected))
    )


def reference(target: Identity) -> Object:
    """Return the reference of a target as written in baselines."""
    return {name: text for name, text in zip(_FIELDS, target, strict=True) if text}


def read_baseline(name: str) -> frozenset[Identity]:
    """Return the objects of a baseline.

    Raises:
        InvalidSetting: The file is not a valid baseline.
    """
    documents = list(read_all([name]))
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        msg = f"{name}: expected one document of kind {KIND}; --write-baseline makes one"
        raise InvalidSetting(msg)
    listed = value.get("objects")
    if not isinstance(listed, list):
        raise InvalidSetting(f"{name}: objects must be a list")
    return frozenset(
        _identity(item, f"{name}: objects[{index}]") for index, item in enumerate(listed)
    )


def write_baseline(name: str, targets: Iterable[Identity]) -> None:
    """Write a baseline with sorted objects, so that versions of the file can be compared.

    Raises:
        InvalidSetting: The file cannot be written.
    """
    listed = [reference(target) for target in sorted(targets)]
    try:
        Path(name).write_text(render_yaml({"kind": KIND, "objects": listed}), encoding="utf-8")
    except OSError as error:
        raise InvalidSetting(f"{name}: cannot be written: {error.strerror}") from error


def _identity(item: Any, place: str) -> Identity:
    if not isinstance(item, dict):
        raise InvalidSetting(f"{place}: expected a map with {', '.join(_FIELDS)}")
    for name, text in item.items():
        if name not in _FIELDS or not isinstance(text, str):
            msg = f"{place}.{name}: only {', '.join(_FIELDS)} are allowed, as strings"
            raise InvalidSetting(msg)
    for name in _NEEDED:
        if not item.get(name):
            raise InvalidSetting(f"{place}: {name} is missing")
    api_version, kind, namespace, name, subresource = (item.get(field, "") for field in _FIELDS)
    return api_version, kind, namespace, name, subresource
