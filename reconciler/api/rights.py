"""RBAC rights: their text form and its parser, and the rights that rules need."""

import re
from dataclasses import dataclass

from typing_extensions import override

from reconciler.api.meta import Kind

ANY = "*"
"""A group or resource that depends on values."""

_TEXT = re.compile(
    r"(?P<verb>[a-z]+) (?P<resource>[^\s./]+)(?:\.(?P<group>[^\s/]+))?(?:/(?P<subresource>\S+))?"
    r"(?: in namespace (?P<namespace>\S+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A right that RBAC grants; it does not depend on API versions.

    Attributes:
        resource: The plural name.
        namespace: Empty for all namespaces, and for cluster-scoped resources.
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
        """Return the right to a verb on objects of a kind."""
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

    None where it names something else, such as a path. The text never includes an object's name.
    """
    found = _TEXT.fullmatch(text)
    return None if found is None else Right(**found.groupdict(default=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Rights of which a rule needs one.

    Attributes:
        location: Place of the target or the match in the policy.
        options: Any one of these rights is enough; the preferred one comes first.
    """

    location: str
    options: tuple[Right, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNeed:
    """A need to read objects of a kind, whose resource has to be discovered in the cluster.

    Attributes:
        location: Place in the policy that reads them.
        verb: ``get`` or ``list``.
        namespace: Empty for all namespaces.
        name: The name of one object; empty for any.
    """

    location: str
    verb: str
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNeed:
    """A need to change one target of a rule, as far as the policy's text shows it.

    Attributes:
        location: Place of the target in the policy.
        api_version: Empty where it depends on the trigger.
        kind: Empty where it depends on the trigger, or where it is a pattern for several kinds.
        namespaces: Namespaces of a namespaced kind; the empty string stands for all of them.
        anywhere: The target has no namespace, so it may be of a cluster-scoped kind too.
        in_one: Each trigger has targets in one namespace only, whatever `namespaces` contains.
        named: The target names one object, so nothing has to be listed.
        name: The name of that object, where the text contains it.
        looked_at: For a subresource, the object itself is read to check whether it is selected.
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
