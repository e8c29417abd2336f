"""Patches: applying them to objects, and computing the patch between two objects.

Documents are plain JSON values. Inputs are never changed; results share unchanged parts.
"""

from reconciler.engine.patch.diff import equal, json_diff, merge_diff
from reconciler.engine.patch.keys import SHIPPED, KeyTable, Schema
from reconciler.engine.patch.merge7386 import apply_merge_patch
from reconciler.engine.patch.rfc6902 import (
    LENIENT,
    Operation,
    Profile,
    apply_operations,
    compile_operations,
)
from reconciler.engine.patch.strategic import merge

__all__ = [
    "LENIENT",
    "SHIPPED",
    "KeyTable",
    "Operation",
    "Profile",
    "Schema",
    "apply_merge_patch",
    "apply_operations",
    "compile_operations",
    "equal",
    "json_diff",
    "merge",
    "merge_diff",
]
