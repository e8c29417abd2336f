"""Resident memory and CPU time of other processes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.figures import Memory

_PROC = Path("/proc")


async def resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    if _PROC.is_dir():
        with contextlib.suppress(OSError):
            pages = int((_PROC / str(pid) / "statm").read_bytes().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0
    process = await asyncio.create_subprocess_exec(
        "ps", "-o", "rss=", "-p", str(pid), stdout=asyncio.subprocess.PIPE
    )
    text, _ = await process.communicate()
    return int(text or 0) * 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far; 0 on systems without /proc."""
    if not _PROC.is_dir():
        return 0.0
    # The command name may contain spaces; it ends at the last parenthesis.
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def measured(pids: Mapping[str, int]) -> AsyncIterator[dict[str, Memory]]:
    """Yield the memory of processes by name: at the start, and the peak until the end."""
    found = {}
    for name, pid in pids.items():
        now = await resident(pid)
        found[name] = Memory(at_rest=now, peak=now)
    task = asyncio.create_task(_sample(pids, found))
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _sample(pids: Mapping[str, int], found: dict[str, Memory]) -> None:
    # Without /proc, each sample starts a ps process.
    interval = 0.1 if _PROC.is_dir() else 0.5
    while True:
        await asyncio.sleep(interval)
        for name, pid in pids.items():
            now, before = await resident(pid), found[name]
            if now > before.peak:
                found[name] = Memory(at_rest=before.at_rest, peak=now)
