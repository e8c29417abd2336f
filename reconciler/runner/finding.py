"""The executables of a folder and their configurations."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.api.meta import Object, PolicyRef
from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.execution.discovery import Executable, find_executables
from reconciler.execution.executables import Executables
from reconciler.execution.naming import object_names
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import decode_text
from reconciler.hooks.declared import HOOKS, is_executable
from reconciler.hooks.webhooks import NAME_RULE, is_webhook_name
from reconciler.services.hooks.answering import AnsweredHook
from reconciler.services.hooks.compiling import read_printed
from reconciler.services.hooks.registration import RegisteredHook
from reconciler.services.ports.jq import Jq

_VERSION = "configVersion"
_EXECUTABLE = "executable"
_NOT_EXECUTABLE = "it is not executable; chmod +x makes it a hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHooks:
    """The hooks found in a folder.

    Attributes:
        known: Executables with a valid configuration.
        answering: Those that the API server calls, in order.
        registered: All executables, in the form in which the cluster shows them.
    """

    known: Mapping[PolicyRef, Executable]
    answering: tuple[AnsweredHook, ...]
    registered: tuple[RegisteredHook, ...]

    @property
    def specs(self) -> dict[PolicyRef, Mapping[str, Any] | None]:
        """Return the specs of the Hooks that are run, and None for one that is refused."""
        return {hook.ref: None if hook.refused else hook.spec for hook in self.registered}


async def find_hooks(
    folder: Path,
    executables: Executables,
    jq: Jq,
    *,
    namespace: str,
    stored: Iterable[Object] = (),
    warn: Callable[[str], None],
) -> FoundHooks:
    """Read the configurations of all executables of a folder, in order.

    An invalid one is reported and does not affect the others. So is one that was a hook and is no
    longer executable; another file that is not executable need not be meant as a hook.

    Args:
        stored: The Hooks of the namespace, of earlier processes.

    Raises:
        InvalidSetting: The folder cannot be read.
        Interrupted: An executable could not be run for a reason of the machine.
    """
    discovery = find_executables(folder)
    were_hooks = {obj["spec"][_EXECUTABLE] for obj in stored if is_executable(obj)}
    lapsed = [name for name in discovery.skipped if name in were_hooks]
    names = object_names((*(item.name for item in discovery.executables), *lapsed))
    known: dict[PolicyRef, Executable] = {}
    answering: list[AnsweredHook] = []
    webhooks: dict[str, str] = {}
    registered = [
        RegisteredHook(
            ref=_ref(namespace, names[name]), spec={_EXECUTABLE: name}, refused=_NOT_EXECUTABLE
        )
        for name in lapsed
    ]
    for name in discovery.skipped:
        warn(f"{name} is skipped: {_NOT_EXECUTABLE}")
    for executable in discovery.executables:
        ref = _ref(namespace, names[executable.name])
        spec: dict[str, Any] = {_EXECUTABLE: executable.name}
        try:
            text = await executables.config(executable)
            config = await read_printed(text, jq)
            _take_names(executable.name, config, webhooks)
        except InvalidPolicy as error:
            reason = "; ".join(map(str, (error, *error.others)))
            warn(f"{executable.name} is not run: {reason}")
            registered.append(RegisteredHook(ref=ref, spec=spec, refused=reason))
            continue
        bound = {name: value for name, value in decode_text(text).items() if name != _VERSION}
        registered.append(RegisteredHook(ref=ref, spec={**bound, **spec}))
        known[ref] = executable
        if config.answered:
            answering.append(AnsweredHook(ref=ref, name=executable.name, config=config))
    return FoundHooks(known=known, answering=tuple(answering), registered=tuple(registered))


def _take_names(executable: str, config: HookConfig, taken: dict[str, str]) -> None:
    """Reserve webhook names, which must be valid and unique among all bindings."""
    with ErrorList() as errors:
        names: dict[str, str] = {}
        for field, bindings in (
            ("kubernetesValidating", config.validating),
            ("kubernetesMutating", config.mutating),
        ):
            for index, binding in enumerate(bindings):
                owner = taken.get(binding.name) or names.get(binding.name)
                if reason := _why_no_name(binding.name, owner):
                    errors.add(InvalidPolicy(f"{field}[{index}].name", reason))
                names[binding.name] = executable
    taken.update(names)


def _why_no_name(name: str, owner: str | None) -> str:
    if owner is not None:
        return f"{owner} has a webhook {name!r} already"
    return "" if is_webhook_name(name) else f"{name!r} {NAME_RULE}"


def _ref(namespace: str, name: str) -> PolicyRef:
    return PolicyRef(
        api_version=HOOKS.api_version, kind=HOOKS.kind, namespace=namespace, name=name
    )
