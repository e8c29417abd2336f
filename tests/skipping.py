"""An event loop that skips idle time."""

import asyncio
import selectors

from typing_extensions import override

Events = list[tuple[selectors.SelectorKey, int]]


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    @override
    def select(self, timeout: float | None = None) -> Events:
        assert timeout is not None, "everything waits, and nothing is going to happen"
        self.skipped += max(timeout, 0.0)
        return super().select(0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """Runs coroutines that only wait for timers: an hour of sleeping takes a moment.

    Its time begins at a thousand seconds, whatever the machine's: a test that waits for a full
    hour must not depend on how long the machine has been up.
    """

    def __init__(self) -> None:
        self.waiting = _Selector()
        super().__init__(self.waiting)
        self.waiting.skipped = 1000.0 - super().time()

    @override
    def time(self) -> float:
        return super().time() + self.waiting.skipped
