"""The input and output files of a hook, in one folder for each run."""

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final, Self

from reconciler.errors import InvalidSetting

_PREFIX: Final = "hook-run-"
_PRIVATE: Final = 0o600

CONTEXT: Final = "BINDING_CONTEXT_PATH"
METRICS: Final = "METRICS_PATH"
CONVERSION: Final = "CONVERSION_RESPONSE_PATH"
ADMISSION: Final = "ADMISSION_RESPONSE_PATH"
VALIDATING: Final = "VALIDATING_RESPONSE_PATH"
OPERATIONS: Final = "KUBERNETES_PATCH_PATH"
_FILES: Final = {
    CONTEXT: "binding-context.json",
    METRICS: "metrics.json",
    CONVERSION: "conversion-response.json",
    # The older variable names the same file.
    ADMISSION: "admission-response.json",
    VALIDATING: "admission-response.json",
    OPERATIONS: "kubernetes-patch",
}


class BadAnswer(Exception):
    """A file with an answer of a hook cannot be used."""


class Workspace:
    """The folder of a run, which other users cannot read and which is removed after the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, within: Path, context: str) -> Self:
        """Create the files of a run; all but the context are empty.

        Raises:
            OSError: The files cannot be written.
        """
        made = cls(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within)))
        try:
            for name in set(_FILES.values()):
                text = context if name == _FILES[CONTEXT] else ""
                _write(made.folder / name, text)
        except OSError:
            made.remove()
            raise
        return made

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that name the files.

        Temporary files go there too, such as those of a shell for long here-documents.
        """
        paths = {variable: str(self.folder / name) for variable, name in _FILES.items()}
        return {**paths, "TMPDIR": str(self.folder)}

    def read(self, variable: str, most: int) -> str:
        """Return the text that a hook wrote into a file.

        Raises:
            BadAnswer: It is not a regular text file any more, or too large.
        """
        path = self.folder / _FILES[variable]
        try:
            # A hook may have replaced it by a pipe, or by a link to a file that it must not read.
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise BadAnswer(f"${variable} cannot be read: {error.strerror}") from error
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise BadAnswer(f"${variable} is no longer a regular file: do not replace it")
            data = file.read(most + 1)
        if len(data) > most:
            raise BadAnswer(f"${variable} is larger than {most >> 20} MiB: write less in one run")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadAnswer(f"${variable} is not UTF-8 text: see byte {error.start}") from error

    def remove(self) -> None:
        """Remove the folder with all its content."""
        shutil.rmtree(self.folder, ignore_errors=True)


def clear(folder: Path) -> None:
    """Create the parent folder of the runs, and remove leftovers of a killed program.

    Raises:
        InvalidSetting: The folder cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(left)
    except OSError as error:
        reason = f"temporary files cannot be kept in {folder}: {error.strerror}"
        raise InvalidSetting(reason) from error


def _write(path: Path, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
