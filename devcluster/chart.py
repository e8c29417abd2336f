"""The JSON schema of the chart's values: the programs' settings and the chart's own values.

``python -m devcluster.chart`` writes ``charts/kube-retrofit/values.schema.json``.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from reconciler.api.meta import Object
from reconciler.config import LEAST, AdmissionSettings, ControllerSettings, ProcessSettings
from reconciler.services.catalog.settings import KNOWN_KEYS

CHART = Path(__file__).parents[1] / "charts" / "kube-retrofit"
FIXED = frozenset(
    {
        "kubeconfig",
        "context",
        "namespace",
        "policy_group",
        "service",
        "webhook_url",
        "pod_uid",
        "port",
        "metrics_port",
        "secure_metrics_port",
        "background_service_account",
        "controller_service_account",
    }
)
"""Settings that the manifests fix."""

_DURATION = r"^(0|([0-9]+([.][0-9]+)?(ms|s|m|h|d))+)$"
_TEXT: Object = {"type": "string"}
_SWITCH: Object = {"type": "boolean"}
_ANYTHING: Object = {"type": "object"}
_AMOUNT: Object = {"type": ["integer", "string"]}
_NAMES: Object = {"type": "array", "items": _TEXT}
_DIALECTS = sorted(folder.name for folder in (CHART / "files/dialects").iterdir())
_LIST: Object = {"type": "array", "items": _ANYTHING}
_TEXTS: Object = {"type": "object", "additionalProperties": _TEXT}


def schema() -> Object:
    """Return the JSON schema of the values."""
    values = _complete(
        image=_complete(
            repository=_TEXT,
            tag=_TEXT,
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            pullSecrets=_NAMES,
        ),
        besideKyverno=_SWITCH,
        crds=_complete(install=_SWITCH, keep=_SWITCH, reports=_SWITCH),
        namespace=_complete(create=_SWITCH),
        dialects={"type": "array", "items": {"enum": _DIALECTS}, "uniqueItems": True},
        hooks=_SWITCH,
        tenants=_SWITCH,
        clientCertificate=_SWITCH,
        metricsAuth=_SWITCH,
        ui=_SWITCH,
        certManager=_SWITCH,
        monitoring=_complete(dashboard=_SWITCH, operator=_SWITCH, labels=_TEXTS),
        config=_closed(**dict.fromkeys(sorted(KNOWN_KEYS), _TEXT)),
        admission=_program(AdmissionSettings),
        controller=_program(ControllerSettings),
    )
    # Helm passes this value to every subchart.
    values["properties"]["global"] = _ANYTHING
    return {"$schema": "http://json-schema.org/draft-07/schema#", **values}


def _program(settings: type[ProcessSettings]) -> Object:
    flags = {
        item.name.replace("_", "-"): _flag(item)
        for item in dataclasses.fields(settings)
        if item.name not in FIXED
    }
    return _complete(
        replicas={"type": "integer", "minimum": 1},
        flags=_closed(**flags),
        env={
            "type": "array",
            "items": {
                **_closed(name=_TEXT, value=_TEXT, valueFrom=_ANYTHING),
                "required": ["name"],
            },
        },
        volumes=_LIST,
        volumeMounts=_LIST,
        resources=_closed(requests=_ANYTHING, limits=_ANYTHING, claims=_LIST),
        podDisruptionBudget=_closed(
            minAvailable=_AMOUNT, maxUnavailable=_AMOUNT, unhealthyPodEvictionPolicy=_TEXT
        ),
        podAnnotations=_TEXTS,
        podLabels=_TEXTS,
        podSpec=_ANYTHING,
    )


def _flag(item: dataclasses.Field[Any]) -> Object:
    meaning = {"description": item.metadata["help"]}
    if item.metadata["choices"]:
        return {"enum": item.metadata["choices"].split("|"), **meaning}
    if item.type is float:
        # The only number that is a duration is 0.
        number = {"minimum": 0, "maximum": 0}
        return {"type": ["string", "integer"], "pattern": _DURATION, **number, **meaning}
    least = {"minimum": LEAST[item.name]} if item.name in LEAST else {}
    kind = {bool: "boolean", int: "integer"}.get(type(item.default), "string")
    return {"type": kind, **least, **meaning}


def _complete(**properties: Object) -> Object:
    """Return a schema of values that all have a default; Helm removes one that is set to null."""
    return {**_closed(**properties), "required": sorted(properties)}


def _closed(**properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def write() -> None:
    """Write the schema next to the values."""
    text = json.dumps(schema(), indent=2, ensure_ascii=False)
    (CHART / "values.schema.json").write_text(f"{text}\n")


if __name__ == "__main__":
    write()
