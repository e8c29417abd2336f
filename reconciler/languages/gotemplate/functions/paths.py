"""Paths, with slashes between their parts."""

from reconciler.engine.values.gotext import clean_path
from reconciler.languages.gotemplate.signature import STRING, Family, family, plain


def _base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return clean_path(head + slash)


def _ext(path: str) -> str:
    name = path.rpartition("/")[2]
    at = name.rfind(".")
    return name[at:] if at >= 0 else ""


FUNCTIONS: Family = family(
    {
        "base": plain(_base, STRING),
        "dir": plain(_dir, STRING),
        "clean": plain(clean_path, STRING),
        "ext": plain(_ext, STRING),
        "isAbs": plain(lambda path: path.startswith("/"), STRING),
    },
    osBase="base",
    osDir="dir",
    osClean="clean",
    osExt="ext",
    osIsAbs="isAbs",
)
