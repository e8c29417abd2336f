"""The model of HookTests: states of a cluster, and the expected results of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.cli.desk.fields import read_fields, read_text
from reconciler.engine import reading
from reconciler.errors import InvalidSetting

API_VERSION: Final = "kube-retrofit.dev/v1alpha1"
KIND: Final = "HookTest"
_FIELDS: Final = ("apiVersion", "kind", "metadata", "hook", "steps")
_STEP: Final = ("name", "clusterState", "schedule", "expect")
_EXPECT: Final = ("contexts", "operations", "objects", "failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event and the expected results; parts that are None or empty are not checked.

    Attributes:
        location: The place in the test file.
        cluster: Files with all objects of the new state; None where a schedule is due.
        schedule: The crontab that is due.
        objects: Files with objects in their expected state after the operations.
        failure: A part of the expected error message of the run.
    """

    location: str
    name: str
    cluster: tuple[str, ...] | None
    schedule: str
    contexts: list[Any] | None
    operations: list[Any] | None
    objects: tuple[str, ...]
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTest:
    """One document of a test file.

    Attributes:
        path: The test file; names in it are relative to its folder.
        hook: The path of an executable, or of a file with a declared hook.
    """

    path: Path
    name: str
    hook: str
    steps: tuple[Step, ...]


def is_hook_test(value: Any) -> bool:
    """Return whether a document is a HookTest."""
    return isinstance(value, Mapping) and value.get("kind") == KIND


def read_hook_test(value: Any, place: str, path: Path) -> HookTest:
    """Return the HookTest of a document.

    Raises:
        InvalidPolicy: A field has the wrong type.
        InvalidSetting: A field is unknown or missing.
    """
    fields = read_fields(value, place, allowed=_FIELDS)
    if fields.get("apiVersion") != API_VERSION:
        raise InvalidSetting(f"{place}: expected apiVersion {API_VERSION} with kind {KIND}")
    meta = fields.get("metadata")
    steps = reading.sequence(fields.get("steps"), f"{place}: steps")
    if not steps:
        raise InvalidSetting(f"{place}: steps: expected at least one")
    return HookTest(
        path=path,
        name=str(meta.get("name") or "") if isinstance(meta, Mapping) else "",
        hook=reading.string(fields.get("hook"), f"{place}: hook"),
        steps=tuple(
            _step(item, f"{place}: steps[{index}]", index) for index, item in enumerate(steps)
        ),
    )


def _step(raw: Any, place: str, index: int) -> Step:
    fields = read_fields(raw, place, allowed=_STEP)
    given = [name for name in ("clusterState", "schedule") if name in fields]
    if len(given) != 1:
        found = " and ".join(given) or "neither"
        raise InvalidSetting(f"{place}: expected clusterState or schedule, found {found}")
    where = f"{place}.expect"
    expect = read_fields(fields.get("expect"), where, allowed=_EXPECT)
    if not expect:
        raise InvalidSetting(f"{where}: expected at least one of {', '.join(_EXPECT)}")
    state = f"{place}.clusterState"
    return Step(
        location=place,
        name=str(fields.get("name") or f"step {index + 1}"),
        cluster=(
            reading.strings(fields["clusterState"], state) if "clusterState" in fields else None
        ),
        schedule=read_text(fields, "schedule", place),
        contexts=_list(expect, "contexts", where),
        operations=_list(expect, "operations", where),
        objects=reading.strings(expect.get("objects"), f"{where}.objects"),
        failure=read_text(expect, "failure", where),
    )


def _list(fields: Mapping[str, Any], name: str, place: str) -> list[Any] | None:
    if name not in fields:
        return None
    return list(reading.sequence(fields[name], f"{place}.{name}"))
