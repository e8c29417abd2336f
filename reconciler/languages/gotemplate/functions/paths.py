"""Paths, with slashes between their parts."""

from reconciler.languages.gotemplate.signature import STRING, Family, family, plain


def _clean(path: str) -> str:
    """Return the shortest equivalent path."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part != "..":
            parts.append(part)
        elif parts and parts[-1] != "..":
            parts.pop()
        elif not rooted:
            parts.append("..")
    return ("/" if rooted else "") + "/".join(parts) or "."


def _base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return _clean(head + slash)


def _ext(path: str) -> str:
    name = path.rpartition("/")[2]
    at = name.rfind(".")
    return name[at:] if at >= 0 else ""


def _is_abs(path: str) -> bool:
    return path.startswith("/")


FUNCTIONS: Family = family(
    {
        "base": plain(_base, STRING),
        "dir": plain(_dir, STRING),
        "clean": plain(_clean, STRING),
        "ext": plain(_ext, STRING),
        "isAbs": plain(_is_abs, STRING),
    },
    osBase="base",
    osDir="dir",
    osClean="clean",
    osExt="ext",
    osIsAbs="isAbs",
)
