"""Loads `model.Test` from files, and refuses fields that the runner does not support."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.chainsaw import documents
from tests.conformance.chainsaw.model import Configuration, Operation, Step, Test, Timeouts

TEST_FILE = "chainsaw-test.yaml"
CONFIGURATION_FILE = ".chainsaw.yaml"

_WRITE = frozenset({"file", "resource", "expect", "template"})
_READ = frozenset({"file", "resource", "template"})
_RUN = frozenset({"check", "env"})
_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "apply": _WRITE,
    "create": _WRITE,
    "update": _WRITE,
    "patch": _WRITE,
    "assert": _READ,
    "error": _READ,
    "delete": frozenset({"ref", "expect"}),
    "sleep": frozenset({"duration"}),
    "wait": frozenset({"apiVersion", "kind", "name", "namespace", "selector", "for"}),
    "script": _RUN | {"content"},
    "command": _RUN | {"entrypoint", "args"},
}
_PHASES = ("try", "catch", "finally", "cleanup")
_SPEC = frozenset({"concurrent", "description", "namespace", "steps", "template", "timeouts"})
_STEP = frozenset({"name", "description", "use", *_PHASES})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class LoadError(Exception):
    """A test contains something that this runner does not support."""


def discover(root: Path) -> list[Path]:
    """Return the folders below `root` that contain a test, in order."""
    return sorted(path.parent for path in root.rglob(TEST_FILE))


def load(folder: Path, root: Path) -> Test:
    """Return the test of a folder, with the nearest configuration in it or above, up to `root`.

    Raises:
        LoadError: The runner does not support something in the test.
    """
    path = folder / TEST_FILE
    found = documents.read(path)
    if len(found) != 1 or found[0].get("kind") != "Test":
        raise LoadError(f"{path}: expected exactly one document of kind Test")
    document = found[0]
    spec = document["spec"]
    _refuse_unknown(spec, _SPEC, f"{path}: spec")
    configuration = _configuration(folder, root)
    return Test(
        folder=folder,
        configuration=Configuration(
            timeouts=_timeouts(spec.get("timeouts", {}), configuration.timeouts),
            delay_before_cleanup=configuration.delay_before_cleanup,
            grace=configuration.grace,
            fast_delete=configuration.fast_delete,
        ),
        steps=tuple(_steps(spec["steps"], folder)),
        namespace=spec.get("namespace", ""),
        template=spec.get("template", True),
        document=document,
    )


def parse_duration(text: str) -> float:
    """Return the seconds of a duration like ``1m30s``.

    Raises:
        LoadError: The text is not a duration.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise LoadError(f"{text!r} is not a duration like 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _configuration(folder: Path, root: Path) -> Configuration:
    for parent in (folder, *folder.parents):
        path = parent / CONFIGURATION_FILE
        if path.is_file():
            spec = documents.read(path)[0]["spec"]
            cleanup, execution = spec.get("cleanup", {}), spec.get("execution", {})
            return Configuration(
                timeouts=_timeouts(spec.get("timeouts", {}), Timeouts()),
                delay_before_cleanup=parse_duration(cleanup.get("delayBeforeCleanup", "0s")),
                grace=int(parse_duration(execution.get("forceTerminationGracePeriod", "1s"))),
                fast_delete=spec.get("namespace", {}).get("fastDelete", False),
            )
        if parent == root:
            break
    return Configuration()


def _timeouts(raw: Mapping[str, str], base: Timeouts) -> Timeouts:
    def seconds(key: str, otherwise: float) -> float:
        return parse_duration(raw[key]) if key in raw else otherwise

    _refuse_unknown(
        raw, frozenset({"apply", "assert", "error", "delete", "cleanup", "exec"}), "timeouts"
    )
    return Timeouts(
        apply=seconds("apply", base.apply),
        assert_=seconds("assert", base.assert_),
        error=seconds("error", base.error),
        delete=seconds("delete", base.delete),
        cleanup=seconds("cleanup", base.cleanup),
        exec=seconds("exec", base.exec),
    )


def _steps(raw: list[dict[str, Any]], folder: Path) -> Iterator[Step]:
    for index, entry in enumerate(raw):
        name = entry.get("name", f"step {index + 1}")
        _refuse_unknown(entry, _STEP, f"step {name}")
        yield _used(name, entry["use"], folder) if "use" in entry else _step(name, entry)


def _used(name: str, use: Mapping[str, Any], folder: Path) -> Step:
    path = folder / use["template"]
    if not path.is_file():
        raise LoadError(f"step {name}: there is no template {use['template']}")
    found = documents.read(path)
    if len(found) != 1 or found[0].get("kind") != "StepTemplate":
        raise LoadError(f"{path}: expected exactly one document of kind StepTemplate")
    spec = found[0]["spec"]
    _refuse_unknown(spec, frozenset(_PHASES), f"{path}: spec")
    given = use.get("with", {}).get("bindings", [])
    bindings = tuple((entry["name"], entry["value"]) for entry in given)
    return _step(name, spec, bindings)


def _step(name: str, entry: Mapping[str, Any], bindings: tuple[tuple[str, Any], ...] = ()) -> Step:
    phases = {
        phase: tuple(
            _operation(raw, f"{name} {phase}[{index}]")
            for index, raw in enumerate(entry.get(phase) or [])
        )
        for phase in _PHASES
    }
    return Step(
        name=name,
        bindings=bindings,
        do=phases["try"],
        catch=phases["catch"],
        finally_=phases["finally"],
        cleanup=phases["cleanup"],
    )


def _operation(raw: Mapping[str, Any], place: str) -> Operation:
    actions = [key for key in raw if key != "description"]
    if len(actions) != 1 or actions[0] not in _ARGUMENTS:
        raise LoadError(f"{place}: expected one of {', '.join(_ARGUMENTS)}, found {actions}")
    action = actions[0]
    arguments = dict(raw[action])
    timeout = arguments.pop("timeout", None)
    _refuse_unknown(arguments, _ARGUMENTS[action], f"{place} {action}")
    named = arguments.get("file") or arguments.get("entrypoint") or ""
    return Operation(
        action=action,
        arguments=arguments,
        timeout=None if timeout is None else parse_duration(timeout),
        place=f"{place} {action} {named}".rstrip(),
    )


def _refuse_unknown(raw: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    unknown = sorted(set(raw) - known)
    if unknown:
        raise LoadError(f"{place}: this runner does not know {', '.join(unknown)}")
