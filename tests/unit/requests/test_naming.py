"""The names, labels and digests of requests."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import LABEL_POLICY, LABEL_SHARD, LABEL_SOURCE
from reconciler.api.updaterequest import Source
from reconciler.requests import naming

DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

texts = st.text(max_size=80)


@given(texts, texts, texts)
def test_equal_causes_have_equal_names_that_are_valid_in_kubernetes(uid, policy, rule):
    name = naming.request_name(uid, policy, rule)
    assert name == naming.request_name(uid, policy, rule)
    assert DNS_NAME.fullmatch(name)
    assert DNS_NAME.fullmatch(naming.recorded_name(name))
    assert len(name) <= 63


@given(st.lists(st.tuples(texts, texts, texts), unique=True, min_size=2, max_size=8))
def test_different_causes_have_different_names(causes):
    assert len({naming.request_name(*cause) for cause in causes}) == len(causes)


def test_the_parts_of_a_cause_are_kept_apart_in_its_name():
    assert naming.request_name("a", "bc", "d") != naming.request_name("ab", "c", "d")
    assert naming.request_name("a", "b", "1:c") != naming.request_name("a", "b1:", "c")


def test_a_sweep_is_named_by_policy_generation_and_rule():
    first = naming.sweep_name("p", 1, "r")
    assert first == naming.sweep_name("p", 1, "r")
    assert len({first, naming.sweep_name("p", 2, "r"), naming.sweep_name("p", 1, "s")}) == 3
    assert naming.child_name(first, "u") != naming.child_name(first, "v")


@given(texts)
def test_a_trigger_always_has_the_same_of_64_shards(uid):
    assert naming.shard(uid) == naming.shard(uid)
    assert 0 <= naming.shard(uid) < 64


def test_all_shards_are_used():
    assert {naming.shard(str(number)) for number in range(2000)} == set(range(64))


@given(texts, st.sampled_from(Source))
def test_every_label_has_a_valid_value(policy, source):
    for value in naming.labels(policy, "u", source).values():
        assert LABEL_VALUE.fullmatch(value)


def test_a_policy_name_that_fits_a_label_is_kept():
    found = naming.labels("set-team", "u", Source.ADMISSION)
    assert found == {
        LABEL_POLICY: "set-team",
        LABEL_SOURCE: "admission",
        LABEL_SHARD: str(naming.shard("u")),
    }


@pytest.mark.parametrize("policy", ["a" * 64, "ns/name", "ends-", "a." * 31 + "a" + "-", ""])
def test_a_policy_name_that_does_not_fit_a_label_is_hashed(policy):
    assert naming.policy_label(policy).startswith("hash-")


def test_policies_of_two_namespaces_have_different_labels():
    assert len({naming.policy_label(key) for key in ("a/p", "b/p", "p")}) == 3


def test_the_digest_ignores_order_and_metadata_that_every_write_changes():
    one = {
        "kind": "ConfigMap",
        "data": {"a": "1", "b": "2"},
        "metadata": {"name": "x", "resourceVersion": "5", "generation": 1, "managedFields": [{}]},
    }
    other = {"metadata": {"name": "x"}, "data": {"b": "2", "a": "1"}, "kind": "ConfigMap"}
    assert naming.digest(one) == naming.digest(other)


def test_the_digest_depends_on_the_content():
    one = {"metadata": {"name": "x"}, "data": {"a": "1"}}
    assert naming.digest(one) != naming.digest({**one, "data": {"a": "2"}})
    assert naming.digest(one) != naming.digest({**one, "metadata": {"name": "y"}})
    assert naming.digest({}) == naming.digest({"metadata": None})
