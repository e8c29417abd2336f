"""Resource filters and user exclusions: requests that never trigger any rule.

The formats are those of Kyverno's ConfigMap: ``[kind,namespace,name]`` groups, and comma-separated
names, where a leading ``!`` includes a name again.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api.meta import Kind, own_namespaces
from reconciler.engine.match import KindSelector, Listing, Subject, UserInfo, parse_kind
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.values.wildcard import (
    Predicate,
    compile_any,
    compile_wildcard,
    has_wildcard,
)
from reconciler.errors import InvalidSetting

NODES = "system:nodes"
"""The group of the kubelets, which is excluded by default."""

# Whatever the settings say: recording requests about UpdateRequests would never end.
_ALWAYS = "[UpdateRequest,*,*]"
_GROUP = re.compile(r"\[([^\[\]]*)\]")
_PARTS = 3
_UNKNOWN = "\0"
"""Stands for an unknown name: only a pattern that matches all names matches it."""
_MOST_SAMPLES = 1000
_FORM = "write each as [kind,namespace,name], such as [Secret,team-a,*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """A filter that excludes objects.

    Attributes:
        text: The filter as written, in brackets.
    """

    text: str
    kind: KindTable
    namespace: Predicate
    name: Predicate

    def fits(self, subject: Subject) -> bool:
        """Return whether the filter matches; a Namespace object counts as being in itself."""
        is_namespace = subject.kind == "Namespace" and not subject.group
        place = subject.effective_name if is_namespace else subject.namespace
        return (
            self.namespace(place)
            and self.name(subject.effective_name)
            and self.kind.accepts(subject)
        )


class ResourceFilters:
    """Resource filters, indexed so that one look-up excludes most of them.

    Attributes:
        written: All of them in the order of the text, after those that always apply.
    """

    __slots__ = ("_any_kind", "_by_kind", "written")

    def __init__(self, filters: Sequence[ResourceFilter]) -> None:
        self.written = tuple(filters)
        named = frozenset[str]().union(*(item.kind.names or () for item in filters))
        self._by_kind = {
            kind: tuple(item for item in filters if kind in (item.kind.names or (kind,)))
            for kind in named
        }
        self._any_kind = tuple(item for item in filters if item.kind.names is None)

    def first(self, subject: Subject) -> ResourceFilter | None:
        """Return the first filter that matches an object, None if none does."""
        for item in self._by_kind.get(subject.kind, self._any_kind):
            if item.fits(subject):
                return item
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Name patterns; those in ``again`` (written with ``!``) override those in ``out``.

    Attributes:
        texts: The patterns that exclude, as written.
    """

    out: Predicate
    again: Predicate
    texts: frozenset[str] = frozenset()

    def excludes(self, names: Iterable[str]) -> bool:
        """Return whether a user with these names is excluded."""
        if not self.texts:
            return False
        found = tuple(names)
        return any(map(self.out, found)) and not any(map(self.again, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Resource filters and user exclusions; roles are written as ``namespace:name``."""

    resources: ResourceFilters
    usernames: NameList
    groups: NameList
    roles: NameList
    cluster_roles: NameList

    @property
    def asks_for_roles(self) -> bool:
        """Return whether any exclusion depends on the roles of users."""
        return bool(self.roles.texts or self.cluster_roles.texts)

    def exclude(self, subject: Subject) -> bool:
        """Return whether a request is excluded."""
        of_user = () if subject.user is None else self._of_users(subject.user)
        return any(holds for _, holds in of_user) or self.filter(subject)

    def why_excluded(self, subject: Subject) -> str:
        """Return a text about the setting that excludes a request, empty if none does."""
        if (text := self.fitting(subject)) or subject.user is None:
            return f"filtered by resourceFilters {text}" if text else ""
        key = next((key for key, holds in self._of_users(subject.user) if holds), "")
        return f"{key} excludes the sender" if key else ""

    def filter(self, subject: Subject) -> bool:
        """Return whether an object is excluded, regardless of the user."""
        return self.resources.first(subject) is not None

    def fitting(self, subject: Subject) -> str:
        """Return the first resource filter that matches an object, as written, or empty."""
        found = self.resources.first(subject)
        return "" if found is None else found.text

    def covering(self, listing: Listing, kind: KindSelector) -> tuple[str, ...]:
        """Return the resource filters that together exclude all objects of a kind from a rule.

        The result is empty if some object may not be excluded, or if that is unknown.
        """
        found: dict[str, None] = {}
        for count, subject in enumerate(_samples(listing, kind)):
            text = self.fitting(subject) if count < _MOST_SAMPLES else ""
            if not text:
                return ()
            found[text] = None
        return tuple(found)

    @property
    def users(self) -> frozenset[str]:
        """Return the exclusion patterns of all user lists, as written."""
        lists = (self.usernames, self.groups, self.roles, self.cluster_roles)
        return frozenset[str]().union(*(item.texts for item in lists))

    def name(self, kind: Kind, namespace: str, name: str) -> bool:
        """Return whether an object is excluded, given only its kind, namespace and name."""
        subject = Subject(
            obj={},
            group=kind.group,
            version=kind.version,
            kind=kind.kind,
            subresource=kind.subresource,
            name=name,
            namespace=namespace,
        )
        return self.filter(subject)

    def _of_users(self, user: UserInfo) -> Iterator[tuple[str, bool]]:
        yield "excludeGroups", self.groups.excludes(user.groups)
        yield "excludeUsernames", self.usernames.excludes((user.username,))
        yield "excludeRoles", self.roles.excludes(user.roles or ())
        yield "excludeClusterRoles", self.cluster_roles.excludes(user.cluster_roles or ())


def default_filters(own_namespace: str) -> Filters:
    """Return the default filters, which exclude the system namespaces and kubelets."""
    own = sorted(own_namespaces(own_namespace))
    namespaces = ("kube-system", "kube-public", "kube-node-lease", *own)
    places = "".join(f"[*/*,{namespace},*]" for namespace in namespaces)
    return Filters(
        resources=parse_resources(f"[Event,*,*]{places}"),
        usernames=_NOBODY,
        groups=parse_names(NODES),
        roles=_NOBODY,
        cluster_roles=_NOBODY,
    )


def parse_resources(text: str) -> ResourceFilters:
    """Parse resource filters and add those that always apply.

    Raises:
        InvalidSetting: A filter is not ``[kind,namespace,name]``.
    """
    rest = _GROUP.sub("", text).strip(" \t\n,")
    if rest:
        raise InvalidSetting(f"{rest!r} is outside of brackets: {_FORM}")
    return ResourceFilters([_parse_resource(item) for item in _GROUP.findall(_ALWAYS + text)])


def parse_names(text: str) -> NameList:
    """Parse comma-separated names; blanks around names and after ``!`` are ignored."""
    names = [name.strip() for name in text.split(",")]
    out = [name for name in names if name and not name.startswith("!")]
    again = [name[1:].strip() for name in names if name.startswith("!")]
    return NameList(
        out=compile_any(out),
        again=compile_any(name for name in again if name),
        texts=frozenset(out),
    )


_NOBODY: Final = parse_names("")


def _parse_resource(text: str) -> ResourceFilter:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _PARTS or not parts[0]:
        raise InvalidSetting(
            f"[{text}] has {'no kind' if not parts[0] else 'too many parts'}: {_FORM}"
        )
    kind, namespace, name = (*parts, "*", "*")[:_PARTS]
    return ResourceFilter(
        text=f"[{text.strip()}]",
        kind=KindTable((parse_kind(kind),)),
        namespace=compile_wildcard(namespace),
        name=compile_wildcard(name),
    )


def _samples(listing: Listing, kind: KindSelector) -> Iterator[Subject]:
    """Yield a sample object for each distinguishable case of what a rule may match.

    Properties that the rule leaves open are unknown; an open namespace may also be absent.
    """
    namespaces = ("", _UNKNOWN) if listing.namespaces is None else listing.namespaces
    names = (_UNKNOWN,) if listing.names is None else listing.names
    open_ = has_wildcard(kind.subresource)
    subresources = ("", _UNKNOWN) if open_ else (kind.subresource,)
    # With any group, Namespace is taken as the core kind, whose objects count as in themselves.
    group = "" if kind.kind == "Namespace" and kind.group == "*" else kind.group
    for namespace, name, subresource in itertools.product(namespaces, names, subresources):
        yield Subject(
            obj={},
            group=_UNKNOWN if has_wildcard(group) else group,
            version=_UNKNOWN if has_wildcard(kind.version) else kind.version,
            kind=_UNKNOWN if has_wildcard(kind.kind) else kind.kind,
            subresource=subresource,
            name=name,
            namespace=namespace,
        )
