"""The JSON schema of the chart's values: the programs' settings and the chart's own values.

``python -m devcluster.chart`` writes ``charts/kube-retrofit/values.schema.json``.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from reconciler.api.meta import Object
from reconciler.config import AdmissionSettings, ControllerSettings, ProcessSettings
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
_NAMES: Object = {"type": "array", "items": _TEXT}
_TEXTS: Object = {"type": "object", "additionalProperties": _TEXT}


def schema() -> Object:
    """Return the JSON schema of the values."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_closed(
            image=_closed(
                repository=_TEXT,
                tag=_TEXT,
                pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
                pullSecrets=_NAMES,
            ),
            besideKyverno=_SWITCH,
            crds=_closed(install=_SWITCH, keep=_SWITCH, reports=_SWITCH),
            namespace=_closed(create=_SWITCH),
            dialects=_NAMES,
            hooks=_SWITCH,
            tenants=_SWITCH,
            clientCertificate=_SWITCH,
            metricsAuth=_SWITCH,
            ui=_SWITCH,
            certManager=_SWITCH,
            monitoring=_closed(dashboard=_SWITCH, operator=_SWITCH),
            config=_closed(**dict.fromkeys(sorted(KNOWN_KEYS), _TEXT)),
            admission=_program(AdmissionSettings),
            controller=_program(ControllerSettings),
            # Helm passes this value to every subchart.
            **{"global": _ANYTHING},
        ),
    }


def _program(settings: type[ProcessSettings]) -> Object:
    flags = {
        item.name.replace("_", "-"): _flag(item)
        for item in dataclasses.fields(settings)
        if item.name not in FIXED
    }
    return _closed(
        replicas={"type": "integer", "minimum": 1},
        flags=_closed(**flags),
        env={"type": "array", "items": {**_ANYTHING, "required": ["name"]}},
        resources=_ANYTHING,
        podDisruptionBudget=_ANYTHING,
        podAnnotations=_TEXTS,
        podLabels=_TEXTS,
        podSpec=_ANYTHING,
    )


def _flag(item: dataclasses.Field[Any]) -> Object:
    meaning = {"description": item.metadata["help"]}
    if item.metadata["choices"]:
        return {"enum": item.metadata["choices"].split("|"), **meaning}
    if item.type is float:
        return {**_TEXT, "pattern": _DURATION, **meaning}
    return {"type": {bool: "boolean", int: "integer"}.get(type(item.default), "string"), **meaning}


def _closed(**properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def write() -> None:
    """Write the schema next to the values."""
    text = json.dumps(schema(), indent=2, ensure_ascii=False)
    (CHART / "values.schema.json").write_text(f"{text}\n")


if __name__ == "__main__":
    write()
