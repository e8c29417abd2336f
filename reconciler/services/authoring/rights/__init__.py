"""Checks whether the controller has the rights that a policy needs."""

from reconciler.api.rights import Need
from reconciler.services.authoring.rights.checks import Lack, RightsCheck
from reconciler.services.authoring.rights.grant import account_roles, cluster_role
from reconciler.services.authoring.rights.hooks import HookLack, HookRights

__all__ = [
    "HookLack",
    "HookRights",
    "Lack",
    "Need",
    "RightsCheck",
    "account_roles",
    "cluster_role",
]
