"""Parsing of the account that a policy names."""

import pytest

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT
from reconciler.errors import InvalidPolicy
from reconciler.requests.account import parse_account

OWN = frozenset({"kyverno", "kube-retrofit-recorded"})


def parse(value, namespace=""):
    meta = {"name": "p", "annotations": {ANNOTATION_SERVICE_ACCOUNT: value}}
    return parse_account(
        {"metadata": meta | ({"namespace": namespace} if namespace else {})}, reserved=OWN
    )


@pytest.mark.parametrize(
    ("value", "namespace"),
    [("bot", "shop"), (" bot ", "shop"), ("shop/bot", "")],
)
def test_an_annotation_names_an_account(value, namespace):
    account = parse(value, namespace)
    assert account == ServiceAccount(namespace="shop", name="bot")
    assert account.user == "system:serviceaccount:shop:bot"


def test_a_policy_without_the_annotation_names_no_account():
    assert parse_account({"metadata": {"name": "p"}}, reserved=OWN) is None
    assert parse_account({"metadata": None}, reserved=OWN) is None


@pytest.mark.parametrize(
    ("value", "namespace", "said"),
    [
        ("other/bot", "shop", "not an account of namespace shop"),
        ("shop/bot", "shop", "write the name alone: bot"),
        ("bot", "", "write it as NAMESPACE/NAME$"),
        ("", "", "write it as NAMESPACE/NAME$"),
        ("", "shop", "write it as NAME$"),
        ("shop/", "", "write it as NAMESPACE/NAME$"),
        ("/bot", "", "write it as NAMESPACE/NAME$"),
        ("a/b/c", "", "write it as NAMESPACE/NAME$"),
        ("Bot", "shop", "write it as NAME$"),
        ("bot:admin", "shop", "write it as NAME$"),
        ("bot\nx", "shop", "write it as NAME$"),
        ("x" * 254, "shop", "write it as NAME$"),
        ("kyverno/kyverno-background-controller", "", "belongs to kube-retrofit"),
        ("kube-retrofit-recorded/default", "", "belongs to kube-retrofit"),
        ("kyverno-background-controller", "kyverno", "belongs to kube-retrofit"),
    ],
)
def test_an_invalid_account_is_refused_with_location_and_remedy(value, namespace, said):
    with pytest.raises(InvalidPolicy, match=said) as refused:
        parse(value, namespace)
    assert refused.value.location == f"metadata.annotations[{ANNOTATION_SERVICE_ACCOUNT}]"
