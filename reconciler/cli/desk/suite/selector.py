"""The selector of test rows: ``policy=...,rule=...,resource=...`` with wildcards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import click

from reconciler.cli.desk.file_objects import Key
from reconciler.cli.desk.suite.model import Expected, ObjectName
from reconciler.engine.values.wildcard import matches

_PARTS = ("policy", "rule", "resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Patterns for the names of a row.

    Attributes:
        resource: The pattern for the name of an object or, with a slash, ``namespace/name``.
    """

    policy: str = "*"
    rule: str = "*"
    resource: str = "*"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the selector of a text; an omitted part selects everything.

        Raises:
            click.UsageError: The text is not a selector.
        """
        found: dict[str, str] = {}
        for part in filter(None, (item.strip() for item in text.split(","))):
            name, sign, pattern = part.partition("=")
            if name not in _PARTS or not sign or not pattern or name in found:
                raise click.UsageError(
                    f"--test-case-selector {text}: expected policy=NAME,rule=NAME,resource=NAME,"
                    f" each once or not at all, found {part}"
                )
            found[name] = pattern
        return cls(**found)

    def entries(self, expected: Sequence[Expected]) -> tuple[Expected, ...]:
        """Return the selected entries of ``results``, reduced to the selected objects."""
        chosen = (
            replace(item, objects=tuple(filter(self._may_mean, item.objects)))
            for item in expected
            # An entry without a rule covers all rules of its policy.
            if matches(self.policy, item.policy)
            and (not item.rule or matches(self.rule, item.rule))
        )
        named = {item.location for item in expected if item.objects}
        return tuple(item for item in chosen if item.objects or item.location not in named)

    def accepts(self, key: Key | None) -> bool:
        """Return whether a row for an object is selected."""
        return key is None or self._names(key[2], key[3])

    def _may_mean(self, item: ObjectName) -> bool:
        # A name without a namespace may match several objects; `accepts` filters their rows.
        if item.namespace:
            return self._names(item.namespace, item.name)
        return matches(self.resource.rpartition("/")[2], item.name)

    def _names(self, namespace: str, name: str) -> bool:
        place = f"{namespace}/{name}" if "/" in self.resource else name
        return matches(self.resource, place)


EVERY_ROW: Final = Selector()
