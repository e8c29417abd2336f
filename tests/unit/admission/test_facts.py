"""Decisions while a watch is silent and its cached data may be stale."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from typing_extensions import override

from admission.decide import Limits, decide
from admission.digests import Digests
from admission.facts import Facts
from admission.lookup import Address, RuleLookup
from admission.roles import ROLE_BINDINGS, RoleIndex
from reconciler.clock import Deadline, SystemClock
from reconciler.dialects.registry import compile_policy
from reconciler.engine.program import FAIL, Phase, Program
from reconciler.memory.cluster import MemoryCluster
from reconciler.services.catalog.exceptions import ExceptionIndex, ExceptionSettings
from reconciler.services.catalog.rule_index import Known
from reconciler.services.catalog.settings import ClusterSettings, SettingsHolder
from reconciler.serving.review import parse_review
from tests.filters import parse_filters
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import at_once

JANE = {"username": "jane", "groups": ["devs"]}
SELECTOR = {
    "kinds": ["ConfigMap"],
    "namespaceSelector": {"matchLabels": {"team": "a"}},
}


@dataclass
class Said:
    """A watch whose freshness the test sets."""

    heard: bool = True

    def fresh(self):
        return self.heard


def binding(name, role):
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "x"},
        "roleRef": {"kind": "Role", "name": role},
        "subjects": [{"kind": "User", "name": "jane"}],
    }


class Reads(MemoryCluster):
    def __init__(self):
        super().__init__()
        self.lists = 0

    @override
    async def list_page(self, kind, **options):
        self.lists += 1
        await asyncio.sleep(0)
        return await super().list_page(kind, **options)


@pytest.fixture
def cluster() -> Reads:
    return Reads()


@pytest.fixture
def facts(cluster: Reads) -> Callable[..., Facts]:
    def make(**more):
        known = {"namespaces": {"a": {"team": "b"}}, "roles": RoleIndex(), "reader": cluster}
        return Facts(**(known | {"clock": SystemClock()} | more))

    return make


def programs(make, **rule):
    return compile_policy(make.policy(**rule)).programs


def drafts(make, facts, *policies):
    request = parse_review(make.review(obj=make.thing()))
    return decide(
        request,
        make.index(*policies).rules(Known(kind="ConfigMap", subresource="", namespace="a")),
        parent=None,
        namespace_labels=facts.labels("a"),
        limits=Limits(controller_users=("own",), max_recorded=1000, filters=parse_filters()),
        exceptions=facts.exceptions.of,
        excepts=facts.excepts(),
    ).drafts


def test_possibly_stale_namespace_labels_exclude_no_trigger(make, facts):
    watch = Said()
    known = facts(of_namespaces=watch)
    assert not drafts(make, known, make.policy(resources=SELECTOR))
    watch.heard = False
    assert drafts(make, known, make.policy(resources=SELECTOR))


def test_a_possibly_stale_exception_excepts_no_trigger(make, facts):
    exceptions = ExceptionIndex(exception_settings=ExceptionSettings(enabled=True, namespaces="*"))
    exceptions.on_event(
        "ADDED",
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "a"},
            "spec": {
                "exceptions": [{"policyName": "set-team", "ruleNames": ["copy"]}],
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            },
        },
    )
    watch = Said()
    known = facts(exceptions=exceptions, of_exceptions=(watch,))
    assert not drafts(make, known, make.policy())
    watch.heard = False
    assert drafts(make, known, make.policy())


class TestRoles:
    @pytest.fixture
    def asking(self, make: type[Make]) -> tuple[Program, ...]:
        rule = {"match": {"any": [{"resources": {"kinds": ["ConfigMap"]}, "roles": ["x:new"]}]}}
        asking: tuple[Program, ...] = programs(make, spec={"background": False}, **rule)
        return asking

    @pytest.fixture
    def known(self, facts: Callable[..., Facts], cluster: Reads) -> Facts:
        """Facts with the cached role ``old`` where ``new`` is stored now; one watch is silent."""
        roles = RoleIndex()
        roles.on_event("ADDED", binding("old", "old"))
        cluster.serve(ROLE_BINDINGS)
        cluster.add(binding("new", "new"))
        return facts(roles=roles, of_roles=(Said(), Said(heard=False)))

    def test_stale_roles_are_unknown_if_a_rule_matches_roles(self, known, asking):
        assert known.known_roles(JANE, parse_filters(), asking) is None

    @pytest.mark.parametrize("read", ["request.roles", "request.clusterRoles", "request"])
    def test_stale_roles_are_unknown_if_an_expression_reads_them(self, make, known, read):
        key = f"{{{{ to_string({read}) }}}}"
        condition = {"all": [{"key": key, "operator": "Equals", "value": "x"}]}
        reading = programs(make, spec={"background": False}, preconditions=condition)
        assert known.known_roles(JANE, parse_filters(), [*programs(make), *reading]) is None

    def test_stale_roles_are_unknown_if_the_settings_exclude_roles(self, make, known):
        filters = parse_filters(exclude_roles="x:old")
        assert known.known_roles(JANE, filters, programs(make)) is None

    def test_stale_roles_are_used_if_neither_rules_nor_settings_name_roles(self, make, known):
        assert known.known_roles(JANE, parse_filters(), programs(make)).roles == ("x:old",)

    def test_cached_roles_are_used_while_the_watches_are_fresh(self, facts, asking):
        known = facts(of_roles=(Said(), Said()))
        assert known.known_roles(JANE, parse_filters(), asking).roles == ()

    @pytest.mark.parametrize(
        ("roles", "found", "lists"), [(["x:new"], ("x:new",), 2), ([], ("x:old",), 0)]
    )
    async def test_stale_roles_are_read_for_a_review_only_if_a_rule_matches_roles(
        self, make, known, cluster, roles, found, lists
    ):
        match = {"any": [{"resources": {"kinds": ["ConfigMap"]}, "roles": roles}]}
        policy = make.policy(spec={"background": False}, match=match)
        clock = SystemClock()
        lookup = RuleLookup(
            index=make.index(policy),
            facts=known,
            digests=Digests(read_policies=at_once, clock=clock),
            kinds=cluster,
            settings=SettingsHolder("kyverno", ClusterSettings(filters=parse_filters())),
        )
        request = replace(parse_review(make.review(obj=make.thing())), user=JANE)
        deadline = Deadline(clock, 5.0)
        asked = await lookup.find(request, Address(failure_policy=FAIL), Phase.TRIGGERED, deadline)
        assert (asked.request.roles, cluster.lists) == (found, lists)

    async def test_roles_are_read_as_they_are_stored(self, known):
        assert (await known.roles_of(JANE)).roles == ("x:new",)

    async def test_concurrent_reads_of_roles_share_one_list(self, known, cluster):
        work = (known.roles_of(JANE) for _ in range(20))
        assert {found.roles for found in await asyncio.gather(*work)} == {("x:new",)}
        assert cluster.lists == 2
