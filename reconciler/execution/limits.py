"""Resource limits of a hook's processes, and the command that sets them at the start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_BLOCK: Final = 512
_SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLimits:
    """Resource limits of one run of a hook.

    Attributes:
        memory: Bytes of address space of each of its processes; 0 for no limit.
        file: Bytes of any file that it writes.
        files: Number of open files.
        result: Bytes of each file with its answers.
        config: Bytes of the configuration that it prints.
        config_seconds: Seconds for printing the configuration.
        grace: Seconds between SIGTERM and SIGKILL.
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

        A shell sets them and becomes the executable: setting them from outside would be too late,
        and code between fork and exec is slow in a large process and may only do little.
        """
        settings = [
            "umask 077",
            "ulimit -c 0",
            f"ulimit -n {self.files}",
            f"ulimit -f {self.file // _BLOCK}",
        ]
        if self.memory:
            settings.append(f"ulimit -v {self.memory // _KIB}")
        # A lower limit stays in force; a limit that the system does not support is skipped.
        lines = [f"{setting} 2>/dev/null || :" for setting in settings]
        script = "\n".join([*lines, 'cd "$1" || exit 126', "shift", 'exec "$@"'])
        return [_SHELL, "-c", script, _SHELL, str(folder), str(path), *arguments]
