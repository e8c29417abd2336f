"""Finds the ``images`` of an object that runs containers, and splits them into their parts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.errors import EvaluationError

_GROUPS = ("initContainers", "containers", "ephemeralContainers")
_TEMPLATE = ("spec", "template", "spec")
_POD_SPECS: Mapping[str, tuple[str, ...]] = {
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    "DaemonSet": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "Job": _TEMPLATE,
    "Pod": ("spec",),
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
}
_DEFAULT_REGISTRY = "docker.io"
_DEFAULT_TAG = "latest"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
_LONGEST = 1024


def find_images(resource: Any) -> dict[str, Any] | None:
    """Return ``{containers: {name: parts}, ...}``, None for kinds without containers.

    Raises:
        EvaluationError: An image cannot be parsed.
    """
    if not isinstance(resource, dict) or resource.get("kind") not in _POD_SPECS:
        return None
    path = _POD_SPECS[resource["kind"]]
    spec: Any = resource
    for key in path:
        spec = spec.get(key) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return {}
    found: dict[str, Any] = {}
    for group in _GROUPS:
        images = dict(_group(spec.get(group), f"/{'/'.join(path)}/{group}"))
        if images:
            found[group] = images
    return found


def split_image(image: str) -> dict[str, str]:
    """Split an image into registry, path, name, tag, digest and its full references.

    Raises:
        EvaluationError: The text is not an image reference.
    """
    registry, remainder = _registry(image)
    match = _REFERENCE.fullmatch(remainder) if len(image) <= _LONGEST else None
    if match is None:
        raise EvaluationError(f"bad image: {image[:80]}: invalid reference format")
    path, digest = match["path"], match["digest"] or ""
    tag = match["tag"] or ("" if digest else _DEFAULT_TAG)
    base = f"{registry}/{path}"
    parts = {
        "registry": registry,
        "name": path.rpartition("/")[2],
        "path": path,
        "tag": tag,
        "digest": digest,
        "reference": f"{base}@{digest}" if digest else f"{base}:{tag}",
        "referenceWithTag": f"{base}:{tag}" if tag else "",
    }
    return {key: value for key, value in parts.items() if value}


def qualified(image: str) -> str:
    """Return an image with its registry in front, whether it is a valid image or not."""
    return "/".join(_registry(image))


def _registry(image: str) -> tuple[str, str]:
    first, slash, rest = image.partition("/")
    return (first, rest) if slash and _is_registry(first) else (_DEFAULT_REGISTRY, image)


def _group(containers: Any, pointer: str) -> Iterator[tuple[str, dict[str, str]]]:
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        if not isinstance(container, dict):
            continue
        name, image = container.get("name"), container.get("image")
        if isinstance(name, str) and isinstance(image, str) and image:
            yield name, split_image(image) | {"jsonPointer": f"{pointer}/{index}/image"}


def _is_registry(text: str) -> bool:
    return "." in text or ":" in text or text == "localhost" or text != text.lower()
