"""One right in the words of RBAC, as it is asked for, named to people and read back."""

import re
from dataclasses import dataclass

from typing_extensions import override

from reconciler.api.meta import Kind

ANY = "*"
"""A group or resource that only values tell."""

_TEXT = re.compile(
    r"(?P<verb>[a-z]+) (?P<resource>[^\s./]+)(?:\.(?P<group>[^\s/]+))?(?:/(?P<subresource>\S+))?"
    r"(?: in namespace (?P<namespace>\S+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What RBAC grants or not; versions mean nothing to it.

    Attributes:
        resource: The plural name.
        namespace: Empty for all namespaces, and for what has none.
        name: Empty for any object.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, verb: str, kind: Kind, *, namespace: str = "", name: str = "") -> "Right":
        """Return the right to do something with objects of a kind."""
        return cls(
            verb=verb,
            group=kind.group,
            resource=kind.plural,
            subresource=kind.subresource,
            namespace=namespace if kind.namespaced else "",
            name=name,
        )

    @override
    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        part = f"/{self.subresource}" if self.subresource else ""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{group}{part}{place}"


def parse_right(text: str) -> Right | None:
    """Return the right that a text like ``patch deployments.apps in namespace a`` names.

    None where it names something else, such as a path. The text never names an object.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict(default="")
    return Right(
        verb=parts["verb"],
        group=parts["group"],
        resource=parts["resource"],
        subresource=parts["subresource"],
        namespace=parts["namespace"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a rule needs.

    Attributes:
        location: In the policy, of the target or the match.
        options: The rights of which any one is enough; the best comes first.
    """

    location: str
    options: tuple[Right, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNeed:
    """What reading objects of a kind needs; which resource that is, the cluster tells.

    Attributes:
        location: In the policy, of what reads them.
        verb: ``get`` or ``list``.
        namespace: Empty for all namespaces.
        name: Of one object; empty for any.
    """

    location: str
    verb: str
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNeed:
    """What changing one target of a rule needs, as far as the policy's text says it.

    Attributes:
        location: Of the target in the policy.
        api_version: Empty where only a trigger tells it.
        kind: Empty where only a trigger tells it, or where it is a pattern for several.
        namespaces: Where, if the kind is namespaced; the empty text stands for all of them.
        anywhere: No namespace is asked for, so cluster-scoped kinds are meant too.
        in_one: It is one namespace for each trigger, whatever `namespaces` says.
        named: One object is named, so nothing has to be listed.
        name: Of that object, where the text says it.
        looked_at: Of a subresource the object itself is read, to see whether it is meant.
    """

    location: str
    api_version: str
    kind: str
    namespaces: tuple[str, ...]
    anywhere: bool
    in_one: bool
    named: bool
    name: str
    looked_at: bool
