"""An account whose rights a test lists."""

from dataclasses import dataclass, field

from reconciler.api.account import ServiceAccount
from reconciler.api.rights import Right
from reconciler.errors import ClusterError


@dataclass
class Account:
    """The `Accesses` port: everything is granted but what a text in `lacks` begins.

    A text is a right as people read it: ``update secrets`` stands for all namespaces and each.
    `named` holds the accounts that policies name; one that is absent there may everything.
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
