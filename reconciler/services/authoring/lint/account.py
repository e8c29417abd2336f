"""The annotation that names a policy's account: a finding about its form."""

from collections.abc import Iterator

from reconciler.api.meta import Object, own_namespaces
from reconciler.dialects.finding import Finding, invalid
from reconciler.errors import InvalidPolicy
from reconciler.requests.account import parse_account
from reconciler.services.catalog.protection import Protection


def account_findings(policy: Object, protection: Protection) -> Iterator[Finding]:
    """Yield why a policy cannot work as the account that it names."""
    try:
        parse_account(policy, own=own_namespaces(protection.namespace))
    except InvalidPolicy as error:
        yield invalid(error)
