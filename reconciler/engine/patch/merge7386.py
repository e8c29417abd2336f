"""JSON merge patch (RFC 7386): maps merge, null deletes, everything else replaces."""

from typing import Any


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """Return the document with the patch applied; unchanged parts are shared with the input."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged
