"""The policies of a command line: files, and names of what the cluster stores."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.api.meta import Object
from reconciler.cli.desk.files import objects, read_all
from reconciler.cli.desk.policies import is_policy
from reconciler.cli.desk.stock import Scopes
from reconciler.dialects import compile_policy, is_exception
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import Gone, InvalidPolicy, InvalidSetting, UnknownKind
from reconciler.services.exceptions import ExceptionIndex, Heeding
from reconciler.services.ports import Policies

_CLUSTER_WIDE: Final = re.compile(r"(?:clusterpolic(?:y|ies)|cpol)/([^/]+)")
_NAMESPACED: Final = re.compile(r"(?:polic(?:y|ies)|pol)/(?:([^/]+)/)?([^/]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is to be previewed, and what is said about it beforehand."""

    compiled: Sequence[CompiledPolicy]
    warnings: Sequence[str]
    refused: Sequence[str]


def split_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files among the names, and the keys of stored policies.

    A file of such a name wins: it is there to be seen.

    Raises:
        InvalidSetting: A Policy is named without its namespace.
    """
    files: list[str] = []
    keys: list[str] = []
    for name in names:
        wide, inside = _CLUSTER_WIDE.fullmatch(name), _NAMESPACED.fullmatch(name)
        if Path(name).exists() or not (wide or inside):
            files.append(name)
        elif wide:
            keys.append(wide[1])
        elif inside and inside[1]:
            keys.append(f"{inside[1]}/{inside[2]}")
        else:
            msg = f"{name}: no such file; a Policy of the cluster is policy/NAMESPACE/NAME"
            raise InvalidSetting(msg)
    return files, keys


def read_files(names: Iterable[str]) -> list[tuple[str, Object]]:
    """Return the policies in files, each with the place where it stands.

    Raises:
        InvalidSetting: A file cannot be used.
    """
    scopes = Scopes()
    return [
        (str(document.place), scopes.placed(obj))
        for document, obj in objects(read_all(names))
        if is_policy(obj)
    ]


def read_exceptions(names: Iterable[str]) -> ExceptionIndex:
    """Return the PolicyExceptions in files, all of which are heeded.

    Raises:
        InvalidSetting: A file cannot be used, or an exception is malformed.
    """
    index = ExceptionIndex(heeding=Heeding(enabled=True, namespaces="*"))
    for document, obj in objects(read_all(names)):
        if is_exception(obj) and (problem := index.take("ADDED", obj).problem):
            raise InvalidSetting(f"{document.place}: {problem}")
    return index


async def read_stored(keys: Iterable[str], policies: Policies) -> list[tuple[str, Object]]:
    """Return policies as the cluster stores them.

    Raises:
        InvalidSetting: One does not exist, or the cluster knows no policies.
        ClusterError: It cannot be read.
    """
    found: list[tuple[str, Object]] = []
    for key in keys:
        try:
            found.append(("cluster", await policies.get(key)))
        except Gone as error:
            raise InvalidSetting(f"the cluster has no policy {key}") from error
        except UnknownKind as error:
            msg = f"policy {key}: the cluster knows no policies, so name a file"
            raise InvalidSetting(msg) from error
    return found


def compile_found(found: Iterable[tuple[str, Object]]) -> Chosen:
    """Compile each policy as the controller does; a refused one stops no other."""
    compiled: list[CompiledPolicy] = []
    warnings: list[str] = []
    refused: list[str] = []
    for place, obj in found:
        head = f"{place}: {obj['kind']} {obj['metadata'].get('name', '')}"
        try:
            one = compile_policy(obj)
        except InvalidPolicy as error:
            refused.append(f"{head}: {error}")
            continue
        compiled.append(one)
        warnings += [f"{head}: {text}" for text in one.warnings]
    return Chosen(compiled=compiled, warnings=warnings, refused=refused)
