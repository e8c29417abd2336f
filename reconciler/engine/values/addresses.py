"""Paths and URLs of calls, in which the value of a variable cannot redirect the call.

The API server decodes ``%2F`` before it splits a path, so escaping cannot keep a value within its
segment: characters that would end one are refused. In a query a value is escaped, and stays one
value. No message shows the value, which may be secret.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from reconciler.errors import EvaluationError

Piece = tuple[str, bool]
"""A part of a path or URL, and whether it is the value of a variable."""

_IN_SEGMENT = ":@!$&'()*+,;=~"
_ENDS_SEGMENT = re.compile(r"[/\\?#%\x00-\x1f\x7f]")
_NO_NAME = re.compile(r"[/%]")
_HOST_PART = re.compile(r"[A-Za-z0-9.-]+")
_SERVICE_DOMAINS = ("svc", "svc.cluster.local")
_TRANSPORT_HEADERS = frozenset(
    {"host", "connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade"}
)
_DOTS = frozenset({".", ".."})
_SCHEME = "://"


def join_path(pieces: Iterable[Piece]) -> str:
    """Return a path of the API server.

    Raises:
        EvaluationError: A value would redirect the call, or the path begins with one.
    """
    first, *rest = pieces
    if first[1]:
        raise _refused(
            "it begins with a variable: write the path out, and use variables for single segments"
            " and for values of the query"
        )
    return _join(first[0], rest, begin=0)


def join_url(pieces: Iterable[Piece]) -> str:
    """Return the URL of a service; a value at its beginning may hold scheme and host.

    Raises:
        EvaluationError: A value would redirect the call.
    """
    made, rest = "", list(pieces)
    while rest and "/" not in made.partition(_SCHEME)[2]:
        text, is_value = rest.pop(0)
        if is_value and made and not _HOST_PART.fullmatch(text):
            raise _refused(
                "a variable within the host resolves to something that is not part of a name"
            )
        made += text
    return _join(made, rest, begin=made.find("/", made.find(_SCHEME) + len(_SCHEME)))


def check_own_service(url: str, namespace: str) -> None:
    """Refuse a URL outside of a namespace; an empty namespace allows every URL.

    Raises:
        EvaluationError: The host is no Service of the namespace.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    _, _, place = host.partition(".")
    if namespace and place not in {f"{namespace}.{end}" for end in _SERVICE_DOMAINS}:
        raise _refused(
            f"a namespaced policy calls Services of its own namespace only: NAME.{namespace}.svc"
        )


def check_header(name: str) -> None:
    """Refuse a header that controls the host, the connection or the framing of a request.

    Raises:
        EvaluationError: The header is one of them.
    """
    if name.strip().lower() in _TRANSPORT_HEADERS:
        raise _refused(f"the header {name.strip()} is set by the connection, not by a policy")


def check_name(text: str, place: str) -> str:
    """Return a name or namespace if it is a single segment of a path.

    Raises:
        EvaluationError: It is empty, consists of dots, or contains ``/`` or ``%``.
    """
    if reason := why_no_name(text):
        raise _refused(f"{place}: {reason}")
    return text


def why_no_name(text: str) -> str:
    """Return why a text is not a single segment of a path, empty where it is."""
    found = _NO_NAME.search(text)
    if text and text not in _DOTS and not found:
        return ""
    why = f"it holds {found[0]!r}" if found else "it is empty" if not text else "it is dots"
    return f"{why}, and no object has such a name"


def _join(made: str, pieces: Iterable[Piece], *, begin: int) -> str:
    """Return `made` with pieces appended; its path begins at the index `begin`."""
    values: list[int] = []
    for text, is_value in pieces:
        if not is_value:
            made += text
        elif "?" in made:
            made += _in_query(text, made)
        else:
            values.append(len(made))
            made += _in_segment(text)
    path = made.partition("?")[0]
    for at in values:
        end = path.find("/", at)
        segment = path[path.rfind("/", begin, at) + 1 : None if end < 0 else end]
        if not segment:
            raise _refused(
                "a variable resolves to nothing, and an empty name never means all of them"
            )
        if segment in _DOTS:
            raise _refused("a variable makes a segment of dots, which leads elsewhere")
    return made


def _in_segment(text: str) -> str:
    found = _ENDS_SEGMENT.search(text)
    if found:
        raise _refused(
            f"the value of a variable holds {found[0]!r}, which would lead elsewhere: a variable"
            " stands for one segment of the path, or for the value of a parameter of the query"
        )
    return quote(text, safe=_IN_SEGMENT)


def _in_query(text: str, made: str) -> str:
    if "=" not in re.split(r"[?&]", made)[-1]:
        raise _refused(
            "a variable stands for the name of a parameter of the query: write the name out, as in"
            " ?labelSelector={{ ... }}"
        )
    return quote(text, safe="")


def _refused(reason: str) -> EvaluationError:
    return EvaluationError(reason).bare(reason)
