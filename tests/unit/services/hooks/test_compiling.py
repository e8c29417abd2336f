"""Hooks are compiled beside the event loop."""

import threading
from typing import Any

from typing_extensions import override

from reconciler.services.hooks.service import compile_in_thread
from tests.unit.services.hooks.test_endings import hook


class Spied(dict[str, Any]):
    """An object that records in which threads it is read."""

    threads: set[int]

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self.threads.add(threading.get_ident())
        return super().get(key, default)


async def test_a_hook_is_compiled_in_a_thread() -> None:
    obj = Spied(hook())
    obj.threads = set()
    compiled = await compile_in_thread(obj)
    assert compiled.ref.name == "once"
    assert obj.threads
    assert threading.get_ident() not in obj.threads
