"""A stand-in for access reviews, with the missing rights listed by the test."""

from dataclasses import dataclass, field

from reconciler.api.account import ServiceAccount
from reconciler.api.rights import Right
from reconciler.errors import ClusterError


@dataclass
class Account:
    """The `Accesses` port: grants every right that does not begin with a text in `lacks`.

    A text has the form of a printed right: ``update secrets`` covers all namespaces.
    `named` holds the accounts that policies name; any other account has all rights.
    """

    lacks: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    broken: ClusterError | None = None
    named: "dict[str, Account]" = field(default_factory=dict)

    def of(self, account: ServiceAccount | None) -> "Account":
        return self if account is None else self.named.setdefault(str(account), Account())

    async def may(self, right: Right) -> bool:
        text = f"{right} named {right.name}" if right.name else str(right)
        self.asked.append(text)
        if self.broken is not None:
            raise self.broken
        return not any(text == one or text.startswith(f"{one} ") for one in self.lacks)
