"""What a process of a hook may take, and how it is held to that before it is there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_BLOCK: Final = 512
_SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLimits:
    """What one run of a hook may take.

    Attributes:
        memory: Bytes of address space of each of its processes; 0 for no limit.
        file: Bytes of a file that it writes, wherever.
        files: That it has open.
        result: Bytes of a file that it answers with.
        config: Bytes that it prints as its configuration.
        config_seconds: That it may take for that.
        grace: Seconds between being asked to end and being killed.
    """

    memory: int = 4096 * _MIB
    file: int = 256 * _MIB
    files: int = 1024
    result: int = 8 * _MIB
    config: int = _MIB
    config_seconds: float = 30.0
    grace: float = 2.0

    def command(self, path: Path, arguments: tuple[str, ...], folder: Path) -> list[str]:
        """Return the command that runs an executable in a folder, within these limits.

        A shell sets them and becomes the executable: what sets them from outside comes too late,
        and code between fork and exec of a large process is slow and may not do much.
        """
        settings = [
            "umask 077",
            "ulimit -c 0",
            f"ulimit -n {self.files}",
            f"ulimit -f {self.file // _BLOCK}",
        ]
        if self.memory:
            settings.append(f"ulimit -v {self.memory // _KIB}")
        # A limit that is lower already stays; a system without one of them has no such limit.
        lines = [f"{setting} 2>/dev/null || :" for setting in settings]
        script = "\n".join([*lines, 'cd "$1" || exit 126', "shift", 'exec "$@"'])
        return [_SHELL, "-c", script, _SHELL, str(folder), str(path), *arguments]
