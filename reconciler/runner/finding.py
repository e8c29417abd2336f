"""The executables of a folder, asked for their configurations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.api.meta import PolicyRef, policy_ref
from reconciler.errors import InvalidPolicy
from reconciler.execution.configuring import read_printed
from reconciler.execution.discovery import Executable, find_executables
from reconciler.execution.executables import Executables
from reconciler.execution.naming import object_names
from reconciler.hooks.config import decode_text
from reconciler.hooks.declared import HOOKS
from reconciler.services.hooks.registration import RegisteredHook
from reconciler.services.ports.jq import Jq

_VERSION = "configVersion"
_EXECUTABLE = "executable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHooks:
    """What a folder has.

    Attributes:
        known: The executables whose configuration can be used.
        registered: All executables, as they are shown in the cluster.
    """

    known: Mapping[PolicyRef, Executable]
    registered: tuple[RegisteredHook, ...]

    @property
    def specs(self) -> dict[PolicyRef, Mapping[str, Any]]:
        """Return the specs of the Hooks that are run."""
        return {hook.ref: hook.spec for hook in self.registered if not hook.refused}


async def find_hooks(
    folder: Path,
    executables: Executables,
    jq: Jq,
    *,
    namespace: str,
    say: Callable[[str], None],
) -> FoundHooks:
    """Ask all executables of a folder for their configurations, in order.

    What is wrong with one is said, and keeps no other from working.

    Raises:
        InvalidSetting: The folder cannot be read.
        Interrupted: The machine could not run one.
    """
    discovery = find_executables(folder)
    for name in discovery.skipped:
        say(f"{name} is skipped: it is not executable; chmod +x makes it a hook")
    names = object_names(item.name for item in discovery.executables)
    known: dict[PolicyRef, Executable] = {}
    registered: list[RegisteredHook] = []
    for executable in discovery.executables:
        ref = _ref(namespace, names[executable.name])
        spec: dict[str, Any] = {_EXECUTABLE: executable.name}
        try:
            text = await executables.config(executable)
            await _check(text, jq)
        except InvalidPolicy as error:
            reason = "; ".join(map(str, (error, *error.others)))
            say(f"{executable.name} is not run: {reason}")
            registered.append(RegisteredHook(ref=ref, spec=spec, refused=reason))
            continue
        bound = {name: value for name, value in decode_text(text).items() if name != _VERSION}
        registered.append(RegisteredHook(ref=ref, spec={**bound, **spec}))
        known[ref] = executable
    return FoundHooks(known=known, registered=tuple(registered))


async def _check(text: str, jq: Jq) -> None:
    config = await read_printed(text, jq)
    for index, binding in enumerate(config.kubernetes):
        if binding.selection.namespace_labels is not None:
            place = f"kubernetes[{index}].namespace.labelSelector"
            reason = "is not supported: name the namespaces, or follow all"
            raise InvalidPolicy(place, reason)
    for field, bindings in (
        ("kubernetesValidating", config.validating),
        ("kubernetesMutating", config.mutating),
        ("kubernetesCustomResourceConversion", config.conversions),
    ):
        if bindings:
            raise InvalidPolicy(field, "is not supported: this program serves no webhooks")


def _ref(namespace: str, name: str) -> PolicyRef:
    meta = {"namespace": namespace, "name": name}
    return policy_ref({"apiVersion": HOOKS.api_version, "kind": HOOKS.kind, "metadata": meta})
