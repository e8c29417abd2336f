"""The policies to preview: of files, and stored ones by name."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reconciler.api.kinds import policy_named
from reconciler.api.meta import Object
from reconciler.cli.desk.acceptance import compile_acceptable
from reconciler.cli.desk.files import no_matter, objects, read_all
from reconciler.cli.desk.policies import bind_account, is_given, placed_policy
from reconciler.cli.desk.stored import policy_key
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, InvalidSetting, NoKindMatch, NotFound
from reconciler.installation import Installation
from reconciler.services.ports.policies import Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The compiled policies, with their warnings and the refused ones."""

    compiled: Sequence[CompiledPolicy]
    warnings: Sequence[str]
    refused: Sequence[str]


def split_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files among the names, and the keys of stored policies.

    Raises:
        InvalidSetting: A Policy is named without its namespace.
    """
    files: list[str] = []
    keys: list[str] = []
    for name in names:
        if key := policy_key(name):
            keys.append(key)
        else:
            files.append(name)
    return files, keys


def read_files(
    names: Sequence[str], pass_over: Callable[[str], None] = no_matter
) -> list[tuple[str, Object]]:
    """Return the policies in files, each with its place; arguments as of `objects`.

    Raises:
        InvalidSetting: A file cannot be used, or none holds a policy.
    """
    found = [
        (str(document.place), placed_policy(obj))
        for document, obj in objects(read_all(names), pass_over)
        if is_given(obj)
    ]
    if names and not found:
        raise InvalidSetting(f"{' '.join(names)}: no policy found")
    return found


async def read_stored(
    keys: Iterable[str], policies: Policies, installation: Installation
) -> list[tuple[str, Object]]:
    """Return stored policies by their keys.

    Raises:
        InvalidSetting: A policy does not exist, or the cluster does not serve its kind.
        ClusterError: A policy cannot be read.
    """
    found: list[tuple[str, Object]] = []
    for key in keys:
        try:
            found.append(("cluster", await policies.get(policy_named(key, installation))))
        except NotFound as error:
            msg = f"policy {key}: the cluster does not have it, and no file has this name"
            raise InvalidSetting(msg) from error
        except NoKindMatch as error:
            msg = f"policy {key}: the cluster knows no policies, so name a file"
            raise InvalidSetting(msg) from error
    return found


def compile_found(found: Iterable[tuple[str, Object]]) -> Chosen:
    """Compile each policy as the controller does; a refused one does not affect the others."""
    compiled: list[CompiledPolicy] = []
    warnings: list[str] = []
    refused: list[str] = []
    for place, obj in found:
        head = f"{place}: {obj['kind']} {obj['metadata'].get('name', '')}"
        try:
            one = bind_account(obj, compile_acceptable(obj))
        except InvalidPolicy as error:
            refused.append(f"{head}: {error}")
            continue
        compiled.append(one)
        warnings += [f"{head}: {text}" for text in one.warnings]
    return Chosen(compiled=compiled, warnings=warnings, refused=refused)
