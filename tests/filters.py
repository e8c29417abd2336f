"""Filters from the texts of a settings ConfigMap."""

from reconciler.services.catalog.settings import Filters
from reconciler.services.catalog.settings.filters import parse_names, parse_resources


def parse_filters(
    *,
    resources: str = "",
    exclude_groups: str = "",
    exclude_usernames: str = "",
    exclude_roles: str = "",
    exclude_cluster_roles: str = "",
) -> Filters:
    """Return filters; those of an empty text exclude nothing but UpdateRequests."""
    return Filters(
        resources=parse_resources(resources),
        usernames=parse_names(exclude_usernames),
        groups=parse_names(exclude_groups),
        roles=parse_names(exclude_roles),
        cluster_roles=parse_names(exclude_cluster_roles),
    )
