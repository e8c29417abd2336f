"""Whether the controller may do what a policy asks of it."""

from reconciler.services.validate.grant import account_roles, cluster_role
from reconciler.services.validate.need import Need
from reconciler.services.validate.rights import Lack, RightsCheck

__all__ = ["Lack", "Need", "RightsCheck", "account_roles", "cluster_role"]
