"""The parts of a filter that match the user of a request."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.engine import reading
from reconciler.engine.match.subject import Subject, UserInfo
from reconciler.engine.values import wildcard
from reconciler.errors import InvalidPolicy, read_each

Answer = bool | None  # None: not known yet

_NOBODY: Final = UserInfo()
_SUBJECT_KINDS: Final = ("User", "Group", "ServiceAccount")
_SUBJECT_FIELDS: Final = ("kind", "name", "namespace", "apiGroup")
_PENDING: Final = "the roles of the user are not known yet"


@dataclass(frozen=True, slots=True)
class Check:
    """A part of a filter, with the reasons to report when it fails or is undecided."""

    predicate: Callable[[Subject], Answer]
    failure: str
    pending: str = ""


def compile_user_checks(
    raw: Mapping[str, Any], *, location: str, allowed: bool
) -> Iterator[Check]:
    """Yield the checks of ``roles``, ``clusterRoles`` and ``subjects``.

    Raises:
        InvalidPolicy: A part is malformed, or user information is not allowed here.
    """
    for field in ("roles", "clusterRoles", "subjects"):
        if raw.get(field) and not allowed:
            reason = (
                "background processing has no user; set spec.background=false to match by user"
            )
            raise InvalidPolicy(f"{location}.{field}", reason)
    place = f"{location}.roles"
    roles = frozenset(read_each(_read_role, reading.strings(raw.get("roles"), place), place))
    if roles:
        yield Check(
            lambda subject: _overlap(roles, _user(subject).roles),
            "user info does not match roles for the given conditionBlock",
            _PENDING,
        )
    cluster_roles = frozenset(reading.strings(raw.get("clusterRoles"), f"{location}.clusterRoles"))
    if cluster_roles:
        yield Check(
            lambda subject: _overlap(cluster_roles, _user(subject).cluster_roles),
            "user info does not match clustersRoles for the given conditionBlock",
            _PENDING,
        )
    subjects = reading.each(_read_subject, raw.get("subjects"), f"{location}.subjects")
    if subjects:
        accepts = compile_subjects(subjects)
        yield Check(
            lambda subject: accepts(_user(subject)),
            "user info does not match subject for the given conditionBlock",
        )


def compile_subjects(subjects: Iterable[Mapping[str, Any]]) -> Callable[[UserInfo], bool]:
    """Compile RBAC subjects to a predicate; a subject of an unknown kind never matches."""
    users: list[str] = []
    groups: list[str] = []
    for subject in subjects:
        match subject.get("kind"):
            case "User":
                users.append(subject.get("name", ""))
            case "Group":
                groups.append(subject.get("name", ""))
            case "ServiceAccount":
                name = f"{subject.get('namespace', '')}:{subject.get('name', '')}"
                users.append(f"system:serviceaccount:{name}")
            case _:
                pass
    fits_user, fits_group = wildcard.compile_any(users), wildcard.compile_any(groups)
    return lambda user: fits_user(user.username) or any(map(fits_group, user.groups))


def _user(subject: Subject) -> UserInfo:
    user = subject.user
    return user if user is not None and user.known else _NOBODY


def _overlap(wanted: frozenset[str], actual: Sequence[str] | None) -> bool | None:
    return None if actual is None else not wanted.isdisjoint(actual)


def _read_role(role: str, place: str) -> str:
    namespace, _, name = role.partition(":")
    if not namespace or not name or ":" in name:
        raise InvalidPolicy(place, f"{role!r} is not a role; write namespace:name")
    return role


def _read_subject(raw: Any, place: str) -> Mapping[str, Any]:
    subject = reading.mapping(raw, place, allowed=_SUBJECT_FIELDS)
    if subject.get("kind") not in _SUBJECT_KINDS:
        raise InvalidPolicy(f"{place}.kind", f"expected one of {', '.join(_SUBJECT_KINDS)}")
    reading.string(subject.get("name"), f"{place}.name")
    if subject["kind"] == "ServiceAccount":
        reading.string(subject.get("namespace"), f"{place}.namespace")
    return subject
