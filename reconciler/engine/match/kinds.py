"""Kind selectors: ``Pod``, ``apps/v1/Deployment``, ``*/*/scale``, ``Pod.status``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.engine.match.subject import Subject
from reconciler.engine.values import wildcard
from reconciler.engine.values.wildcard import Predicate

_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?|\*")
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
_SUBRESOURCE: Final = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSelector:
    """Wildcard patterns for the parts of a kind; an empty subresource is the object itself."""

    group: str
    version: str
    kind: str
    subresource: str

    @property
    def is_listable(self) -> bool:
        """Return whether the selected objects can be listed.

        A request for a subresource leaves nothing to list, and a wildcard names no list.
        """
        return not (self.subresource or "*" in self.kind or "?" in self.kind)

    @property
    def is_every_kind(self) -> bool:
        """Return whether the pattern of the kind fits practically any name."""
        return "*" in self.kind and not self.kind.strip("*?")


def parse_kind(text: str) -> KindSelector:
    """Parse a kind selector; one with more than four parts selects nothing.

    A version without a group leaves the group open: ``v1/Event`` is ``v1`` of any group. A group
    and a star, as ``apps/*``, selects all kinds of the group; in Kyverno it selects none.
    """
    *pieces, last = text.split("/")
    pieces += last.split(".")
    match pieces:
        case [kind]:
            parts = "*", "*", kind, ""
        case ["*", "*"]:
            parts = "*", "*", "*", "*"
        case ["*", name] if _SUBRESOURCE.fullmatch(name):
            parts = "*", "*", "*", name
        case [first, second] if _VERSION.fullmatch(first):
            parts = "*", first, second, ""
        case [first, "*"] if _GROUP.fullmatch(first):
            parts = first, "*", "*", ""
        case [first, second]:
            parts = "*", "*", first, second
        case [first, second, third] if _VERSION.fullmatch(first):
            parts = "*", first, second, third
        case [first, second, third]:
            parts = first, second, third, ""
        case [first, second, third, fourth]:
            parts = first, second, third, fourth
        case _:
            parts = "", "", "", ""
    group, version, kind, subresource = parts
    return KindSelector(group=group, version=version, kind=kind, subresource=subresource)


class KindTable:
    """Kind selectors of one filter, indexed so that one look-up excludes most kinds.

    Attributes:
        names: The literal kinds, or None where a wildcard may select any kind.
    """

    __slots__ = ("_exact", "_wild", "names")

    def __init__(self, selectors: Sequence[KindSelector]) -> None:
        exact: dict[str, list[_Parts]] = {}
        wild: list[tuple[Predicate, _Parts]] = []
        for selector in selectors:
            parts = _Parts(selector)
            if wildcard.has_wildcard(selector.kind):
                wild.append((wildcard.compile_wildcard(selector.kind), parts))
            else:
                exact.setdefault(selector.kind, []).append(parts)
        self._exact = {kind: tuple(parts) for kind, parts in exact.items()}
        self._wild = tuple(wild)
        self.names = None if wild else frozenset(exact)

    def accepts(self, subject: Subject) -> bool:
        """Return whether any selector selects the subject's kind and subresource."""
        for parts in self._exact.get(subject.kind, ()):
            if parts.accept(subject):
                return True
        if not self._wild:
            return False
        return any(kind(subject.kind) and parts.accept(subject) for kind, parts in self._wild)


class _Parts:
    """The parts of a selector beside the kind; None stands for "any"."""

    __slots__ = ("_group", "_main", "_subresource", "_version")

    def __init__(self, selector: KindSelector) -> None:
        self._group = _compile(selector.group)
        self._version = _compile(selector.version)
        self._subresource = _compile(selector.subresource)
        self._main = not selector.subresource

    def accept(self, subject: Subject) -> bool:
        if self._group is not None and not self._group(subject.group):
            return False
        if self._version is not None and not self._version(subject.version):
            return False
        if self._subresource is None or self._subresource(subject.subresource):
            return True
        return self._main and _is_ephemeral(subject)


def _compile(pattern: str) -> Predicate | None:
    return None if pattern == "*" else wildcard.compile_wildcard(pattern)


def _is_ephemeral(subject: Subject) -> bool:
    """Return whether the request adds an ephemeral container, which selectors of Pods match."""
    return (
        subject.subresource == "ephemeralcontainers"
        and subject.kind == "Pod"
        and subject.version == "v1"
        and not subject.group
    )
