"""The path to the Pod of an object: the object itself, or the template of a workload."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from reconciler.dialects.kinitiras.texts import ABSENT, Path
from reconciler.errors import EvaluationError

_TEMPLATE: Final = ("spec", "template", "spec")
_PATHS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Pod": ("spec",),
        "PodTemplate": ("template", "spec"),
        "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
        **dict.fromkeys(
            (
                "Deployment",
                "StatefulSet",
                "DaemonSet",
                "ReplicaSet",
                "ReplicationController",
                "Job",
            ),
            _TEMPLATE,
        ),
    }
)


def pod_path(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path to the specification of the Pod.

    Raises:
        EvaluationError: The kind of the object has no Pod.
    """
    path = _PATHS.get(str(obj.get("kind")))
    if path is None:
        raise EvaluationError(
            f"a {obj.get('kind')} has no Pod to change; narrow resourceSelectors"
        )
    return path


def container_path(obj: Mapping[str, Any], index: int) -> tuple[str, ...]:
    """Return the path to a container.

    Raises:
        EvaluationError: No container has that index.
    """
    path = (*pod_path(obj), "containers")
    if Path((*path, index)).look_up(obj) is ABSENT:
        raise EvaluationError(f"there is no container {index}")
    return (*path, str(index))
