"""Where the Pod of an object is: in itself, or in the template of a workload."""

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
    """Return the way to the specification of the Pod.

    Raises:
        EvaluationError: The object is of no kind that has one.
    """
    path = _PATHS.get(str(obj.get("kind")))
    if path is None:
        raise EvaluationError(
            f"a {obj.get('kind')} has no Pod to change; narrow resourceSelectors"
        )
    return path


def container_path(obj: Mapping[str, Any], index: int) -> tuple[str, ...]:
    """Return the way to a container.

    Raises:
        EvaluationError: There is none of that index.
    """
    path = (*pod_path(obj), "containers")
    if Path((*path, index)).look_up(obj) is ABSENT:
        raise EvaluationError(f"there is no container {index}")
    return (*path, str(index))
