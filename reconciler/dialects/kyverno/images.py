"""The variable ``images``, computed from ``request.object`` when it is read and not bound."""

from collections.abc import Mapping
from typing import Any

from reconciler.engine.context import Context
from reconciler.languages.jmespath.images import find_images


def with_images(context: Context) -> Context:
    """Return a context that has ``images`` if the object runs containers."""
    return context.derive("images", _images)


def _images(data: Mapping[str, Any]) -> Any:
    request = data.get("request")
    return find_images(request.get("object")) if isinstance(request, dict) else None
