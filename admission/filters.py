"""Which requests never trigger anything: resource filters and excluded users of the settings.

The formats are those of the ConfigMap that the users of this API have: ``[kind,namespace,name]``
groups, and comma lists of names where a leading ``!`` takes a name in again.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.engine.match import Subject, parse_kind
from reconciler.engine.match.kinds import KindTable
from reconciler.engine.wildcard import Predicate, compile_any, compile_wildcard
from reconciler.errors import InvalidSetting

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """Objects that are left alone."""

    kind: KindTable
    namespace: Predicate
    name: Predicate

    def fits(self, subject: Subject) -> bool:
        """Return whether the subject is one of them; a Namespace lies in itself."""
        is_namespace = subject.kind == "Namespace" and not subject.group
        place = subject.effective_name if is_namespace else subject.namespace
        return (
            self.namespace(place)
            and self.name(subject.effective_name)
            and self.kind.accepts(subject)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Names with wildcards; what is taken in again wins over what is left out."""

    out: Predicate
    again: Predicate

    def excludes(self, names: Iterable[str]) -> bool:
        """Return whether a user with these names is left out."""
        found = tuple(names)
        return any(map(self.out, found)) and not any(map(self.again, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Both kinds of filter."""

    resources: tuple[ResourceFilter, ...]
    usernames: NameList
    groups: NameList

    def exclude(self, subject: Subject) -> bool:
        """Return whether a request is left alone."""
        user = subject.user
        if user is not None and (
            self.groups.excludes(user.groups) or self.usernames.excludes((user.username,))
        ):
            return True
        return any(item.fits(subject) for item in self.resources)


def parse_filters(
    *, resources: str = "", exclude_groups: str = "", exclude_usernames: str = ""
) -> Filters:
    """Return the filters of settings as they are written.

    Raises:
        InvalidSetting: A resource filter is not ``[kind,namespace,name]``.
    """
    rest = _GROUP.sub("", resources).strip(" \t\n,")
    if rest:
        msg = f"resourceFilters: {rest!r} is no [kind,namespace,name]"
        raise InvalidSetting(msg)
    return Filters(
        resources=tuple(_parse_resource(text) for text in _GROUP.findall(resources)),
        usernames=_parse_names(exclude_usernames),
        groups=_parse_names(exclude_groups),
    )


def default_filters(own_namespace: str) -> Filters:
    """Return what holds without settings: the cluster's own machinery triggers nothing."""
    namespaces = ("kube-system", "kube-public", "kube-node-lease", own_namespace)
    places = "".join(f"[*/*,{namespace},*]" for namespace in namespaces)
    return parse_filters(
        resources=f"[Event,*,*][UpdateRequest,*,*]{places}", exclude_groups="system:nodes"
    )


def read_settings(data: Mapping[str, str], own_namespace: str) -> Filters:
    """Return the filters of the settings ConfigMap; a key that is absent keeps its default.

    Raises:
        InvalidSetting: A resource filter is not ``[kind,namespace,name]``.
    """
    defaults = default_filters(own_namespace)
    read = parse_filters(
        # Requests about requests would never end, whatever the settings say.
        resources=f"[UpdateRequest,*,*]{data.get('resourceFilters', '')}",
        exclude_groups=data.get("excludeGroups", ""),
        exclude_usernames=data.get("excludeUsernames", ""),
    )
    return Filters(
        resources=read.resources if "resourceFilters" in data else defaults.resources,
        usernames=read.usernames,
        groups=read.groups if "excludeGroups" in data else defaults.groups,
    )


def _parse_resource(text: str) -> ResourceFilter:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _PARTS or not parts[0]:
        msg = f"resourceFilters: [{text}] is no [kind,namespace,name]"
        raise InvalidSetting(msg)
    kind, namespace, name = (*parts, "*", "*")[:_PARTS]
    return ResourceFilter(
        kind=KindTable((parse_kind(kind),)),
        namespace=compile_wildcard(namespace),
        name=compile_wildcard(name),
    )


def _parse_names(text: str) -> NameList:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return NameList(
        out=compile_any(name for name in names if not name.startswith("!")),
        again=compile_any(name[1:] for name in names if name.startswith("!")),
    )
