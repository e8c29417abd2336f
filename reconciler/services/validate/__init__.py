"""Whether the controller may do what a policy asks of it."""

from reconciler.services.validate.grant import cluster_role
from reconciler.services.validate.rights import Lack, Need, RightsCheck

__all__ = ["Lack", "Need", "RightsCheck", "cluster_role"]
