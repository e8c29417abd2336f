"""Laws of match conditions: they keep the API server from calling for objects of no rule."""

from typing import Any

import orjson
from cel_expr_python import cel
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.api.meta import Kind, Object
from reconciler.dialects.registry import compile_policy
from reconciler.engine.match import Decision, KindSelector, parse_kind
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy
from reconciler.requests.admission import subject_of
from reconciler.services.rollout import narrowing
from reconciler.serving.review import API_VERSION, KIND, parse_review

KINDS = (
    Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True),
    Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False),
    Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False),
)
ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(("request", "object", "oldObject"), cel.Type.DYN))
NAMES = st.sampled_from(["a", "b"])
LABELS = st.dictionaries(st.sampled_from(["k", "x.io/l"]), st.sampled_from(["", "1", "2"]))
KEYS = st.sampled_from(["k", "x.io/l"])
VALUES = st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=2)
EXPRESSIONS = st.lists(
    st.fixed_dictionaries(
        {"key": KEYS, "operator": st.sampled_from(["In", "NotIn"]), "values": VALUES}
    )
    | st.fixed_dictionaries(
        {"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
    min_size=1,
    max_size=2,
)


def selectors(values: st.SearchStrategy[str]) -> st.SearchStrategy[Object]:
    pairs = st.fixed_dictionaries(
        {"matchLabels": st.dictionaries(KEYS, values, min_size=1, max_size=2)}
    )
    return pairs | st.fixed_dictionaries({"matchExpressions": EXPRESSIONS})


def filters(names: st.SearchStrategy[str], labels: st.SearchStrategy[str]) -> Any:
    lists = st.lists(names, min_size=1, max_size=2)
    resources = st.fixed_dictionaries(
        {"kinds": st.lists(st.sampled_from([kind.kind for kind in KINDS]), min_size=1)},
        optional={"names": lists, "namespaces": lists, "selector": selectors(labels)},
    )
    return st.fixed_dictionaries({"resources": resources})


EXACT = filters(NAMES, st.sampled_from(["1", "2"]))
ANY = filters(st.sampled_from(["a", "b", "?", "a*"]), st.sampled_from(["1", "2", "*", "?"]))
OPERATIONS = st.lists(st.sampled_from(["CREATE", "UPDATE", "DELETE"]), min_size=1, max_size=3)
WITH_OPERATIONS = st.tuples(ANY, OPERATIONS).map(
    lambda pair: {"resources": {**pair[0]["resources"], "operations": pair[1]}}
)


@st.composite
def reviews(draw: st.DrawFn, *, named: bool = False) -> Object:
    """Return an admission request as the API server sends it and as match conditions see it."""
    kind = draw(st.sampled_from(KINDS))
    operation = draw(st.sampled_from(["CREATE", "UPDATE", "DELETE"]))
    generated = not named and operation == "CREATE" and draw(st.booleans())
    collection = not named and operation == "DELETE" and draw(st.booleans())
    name = "" if generated or collection else draw(NAMES)
    place = draw(NAMES) if kind.namespaced else name if kind.kind == "Namespace" else ""
    request: Object = {
        "uid": "1",
        "operation": operation,
        "kind": {"group": "", "version": "v1", "kind": kind.kind},
        "resource": {"group": "", "version": "v1", "resource": kind.plural},
        "userInfo": {"username": "me"},
    }
    request |= ({"name": name} if name else {}) | ({"namespace": place} if place else {})
    if operation != "DELETE":
        request["object"] = _object(draw, kind, name, generated=generated)
    if operation != "CREATE" and not (collection and draw(st.booleans())):
        request["oldObject"] = _object(draw, kind, name or draw(NAMES), generated=False)
    return request


def _object(draw: st.DrawFn, kind: Kind, name: str, *, generated: bool) -> Object:
    # Before an object with generateName is stored its name may be missing. Afterwards the object
    # has a name, and the request may still have none.
    named = draw(st.booleans()) if generated else True
    meta: Object = {"name": name or "a"} if named else {"generateName": draw(NAMES)}
    labels = draw(st.none() | LABELS)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": meta | ({} if labels is None else {"labels": labels}),
    }


def policy(match: Object, exclude: Object | None = None) -> CompiledPolicy:
    rule = {
        "name": "r",
        "match": match,
        **({"exclude": exclude} if exclude else {}),
        "mutate": {
            "targets": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": "n"}],
            "patchStrategicMerge": {"metadata": {"labels": {"seen": "yes"}}},
        },
    }
    return compile_policy(
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "p", "uid": "1", "generation": 1},
            "spec": {"rules": [rule]},
        }
    )


def is_asked(
    policies: list[CompiledPolicy], request: Object, selected: frozenset[str] | None = None
) -> bool:
    """Return whether the API server calls the webhook of some policies for a request.

    Args:
        policies: The policies that the webhook serves.
        request: The admission request, in one of the namespaces or in none.
        selected: The namespaces that the webhook's selector matches. None stands for all.
    """
    kinds: dict[KindSelector, tuple[Kind, ...]] = {
        parse_kind(kind.kind): (kind,) for kind in KINDS
    }
    programs = [program for item in policies for program in item.programs]
    found = narrowing.conditions(programs, kinds, 64, selected=selected, labels_are_final=True)
    shown = {key: value for key, value in request.items() if key not in {"object", "oldObject"}}
    data = {
        "request": shown,
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
    }
    answers = [ENVIRONMENT.compile(item["expression"]).eval(data=data) for item in found]
    # If a condition fails, the API server refuses the request under failurePolicy Fail.
    assert all(answer.type() == cel.Type.BOOL for answer in answers), answers
    return all(answer.value() for answer in answers)


def is_matched(item: CompiledPolicy, request: Object) -> bool:
    review = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
    asked = parse_review(orjson.dumps(review))
    subject = subject_of(asked, asked.kind, {})
    return any(
        program.match.evaluate(subject).decision is not Decision.NO_MATCH
        for program in item.programs
    )


UNNAMED: Object = {
    "uid": "1",
    "operation": "CREATE",
    "kind": {"group": "", "version": "v1", "kind": "Namespace"},
    "resource": {"group": "", "version": "v1", "resource": "namespaces"},
    "object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "a"}},
}


@example([("any", [{"resources": {"kinds": ["Namespace"], "namespaces": ["a"]}}])], None, UNNAMED)
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["any", "all"]),
            st.lists(ANY | WITH_OPERATIONS, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=2,
    ),
    st.none() | EXACT,
    reviews(),
)
def test_the_webhook_is_called_for_every_object_that_a_rule_matches(
    matches: list[tuple[str, list[Object]]], exclude: Object | None, request: Object
) -> None:
    policies = []
    for form, written in matches:
        try:
            policies.append(policy({form: written}, {"any": [exclude]} if exclude else None))
        except InvalidPolicy:
            return
    asked = is_asked(policies, request)
    assert asked or not any(is_matched(item, request) for item in policies)


@given(st.lists(EXACT, min_size=1, max_size=3), reviews(named=True))
def test_for_exact_rules_the_webhook_is_called_for_matching_objects_only(
    written: list[Object], request: Object
) -> None:
    kinds = {kind for item in written for kind in item["resources"]["kinds"]}
    try:
        item = policy({"any": written})
    except InvalidPolicy:
        return
    if request["kind"]["kind"] in kinds and request["operation"] != "DELETE":
        assert is_asked([item], request) == is_matched(item, request)


@given(st.lists(EXACT, min_size=1, max_size=3), st.frozensets(NAMES, min_size=1), reviews())
def test_in_selected_namespaces_calls_do_not_depend_on_the_selector(
    written: list[Object], selected: frozenset[str], request: Object
) -> None:
    try:
        item = policy({"any": written})
    except InvalidPolicy:
        return
    if request["resource"]["resource"] != "configmaps" or request["namespace"] in selected:
        assert is_asked([item], request, selected) == is_asked([item], request)
