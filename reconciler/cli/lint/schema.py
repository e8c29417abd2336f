"""Validation of objects against the schemas of the shipped CustomResourceDefinitions.

CEL rules of the CRDs are not evaluated: for the checked kinds, compiling covers the same rules.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import yaml
from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from reconciler.api.meta import Object
from reconciler.cli.lint.sources import HOOKS
from reconciler.cli.manifests import find_manifests
from reconciler.dialects.kyverno.template import place
from reconciler.installation import BESIDE
from reconciler.services.authoring.lint import Finding, Level

CODE: Final = "crd"
_FILES: Final = {
    "ClusterPolicy": "clusterpolicies",
    "Policy": "policies",
    "PolicyException": "policyexceptions",
    "GlobalContextEntry": "globalcontextentries",
    "ModRule": "dialects/kubemod/modrules",
    "OverridePolicy": "dialects/kinitiras/overridepolicies",
    "ClusterOverridePolicy": "dialects/kinitiras/clusteroverridepolicies",
    "ClusterValidatePolicy": "dialects/kinitiras/clustervalidatepolicies",
    "Hook": "hooks/hooks",
    "ClusterHook": "hooks/clusterhooks",
}
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_META_FIELDS: Final = ("apiVersion", "kind", "metadata")
_NAMES: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def crd_findings(obj: Object) -> Iterator[Finding]:
    """Yield the reasons for which the API server would refuse an object of a checked kind."""
    group, _, version = obj["apiVersion"].partition("/")
    served = _versions(_file_of(obj["kind"], group))
    validator = served.get((group, version))
    if validator is None:
        known = ", ".join(f"{group}/{name}" for group, name in sorted(served))
        yield _finding("apiVersion", f"the CRD serves {obj['kind']} as {known}")
        return
    for error in sorted(validator.iter_errors(obj), key=lambda error: list(map(str, error.path))):
        yield from _explain(error)


def _explain(error: Any) -> Iterator[Finding]:
    where = list(error.absolute_path)
    match error.validator:
        case "additionalProperties":
            known = ", ".join(sorted(error.schema["properties"]))
            for field in error.instance:
                if field not in error.schema["properties"]:
                    text = "unknown field, it would be refused or dropped"
                    yield _finding(place("", [*where, field]), text, f"known are {known}")
        case "required":
            for field in error.schema["required"]:
                if error.instance.get(field) is None:
                    yield _finding(place("", [*where, field]), "is required")
        case "type":
            wanted = error.validator_value
            names = [wanted] if isinstance(wanted, str) else wanted
            expected = " or ".join(_NAMES[name] for name in names if name in _NAMES)
            yield _finding(place("", where), f"expected {expected}, got {_shown(error.instance)}")
        case "enum":
            listed = ", ".join(map(str, error.validator_value))
            yield _finding(place("", where), f"{_shown(error.instance)} is none of {listed}")
        case _:
            yield _finding(place("", where), error.message)


def _finding(location: str, text: str, cure: str = "") -> Finding:
    return Finding(level=Level.ERROR, code=CODE, location=location, text=text, cure=cure)


def _shown(value: Any) -> str:
    match value:
        case dict():
            return _NAMES["object"]
        case list():
            return _NAMES["array"]
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value) or "an empty string"


def _file_of(kind: str, group: str) -> str:
    name = _FILES[kind]
    # Hooks are the same in both installations.
    beside = group == BESIDE.group and kind not in HOOKS
    return f"beside/{BESIDE.plural_prefix}{name}" if beside else name


@cache
def _versions(file: str) -> Mapping[tuple[str, str], Draft4Validator]:
    path = find_manifests() / "crds" / f"{file}.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    spec = yaml.load(path.read_text(), loader)["spec"]  # noqa: S506 - both are safe loaders
    return {
        (spec["group"], version["name"]): _Validator(
            _as_json_schema(version["schema"]["openAPIV3Schema"], root=True)
        )
        for version in spec["versions"]
        if version["served"]
    }


def _as_json_schema(schema: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
    """Return a structural schema as a JSON schema with the API server's implicit rules."""
    found = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    properties = {
        name: _as_json_schema(item) for name, item in (schema.get("properties") or {}).items()
    }
    if root:
        # The API server validates metadata itself.
        properties |= {"metadata": {"type": "object"}}
    if properties:
        found["properties"] = properties
        if not schema.get(_PRESERVE):
            found["additionalProperties"] = False
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            found[keyword] = _as_json_schema(schema[keyword])
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    if schema.get("x-kubernetes-embedded-resource"):
        for name in _META_FIELDS:
            properties.setdefault(name, {})
    if schema.get("nullable") and "type" in found:
        found["type"] = [found["type"], "null"]
    return found


def _properties(
    validator: Any, properties: Mapping[str, Any], instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    # The API server drops nulls of fields that are not nullable before it validates.
    if isinstance(instance, dict):
        kept = {
            name: value
            for name, value in instance.items()
            if value is not None or properties.get(name, {}).get("nullable")
        }
        yield from Draft4Validator.VALIDATORS["properties"](validator, properties, kept, schema)


def _required(
    validator: Any, required: Any, instance: Any, _schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object") and any(
        instance.get(name) is None for name in required
    ):
        yield ValidationError("is required")


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft4Validator, {"properties": _properties, "required": _required}
)
