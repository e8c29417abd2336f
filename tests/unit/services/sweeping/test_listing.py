"""The lists that together contain what a rule may match."""

import pytest

from reconciler.engine.match import Listing
from reconciler.engine.match.kinds import parse_kind
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.sweeping.listing import ObjectLister


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("ConfigMap", {("configmaps", "a"), ("configmaps", "b")}),
        ("apps/v1/Deployment", {("deployments.apps", "a"), ("deployments.apps", "b")}),
        ("Namespace", {("namespaces", "")}),
        ("Nothing", set()),
        # A request for a subresource leaves no object, and a wildcard names no list.
        ("Pod/status", set()),
        ("Config*", set()),
        ("*", set()),
    ],
)
async def test_each_kind_is_listed_in_each_namespace_if_it_has_lists(kind, places):
    cluster = MemoryCluster()
    listing = Listing(kinds=(parse_kind(kind),), namespaces=("a", "b"), names=None)
    found = await ObjectLister(kinds=cluster, reader=cluster).places([listing])
    assert {(place.kind.resource, place.namespace) for place in found} == places
