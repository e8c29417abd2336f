"""Laws of expressions and of documents with variables."""

import jmespath
from hypothesis import given
from hypothesis import strategies as st

from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.context import Context
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import braces, compile_expression
from reconciler.languages.jmespath.functions.registry import REGISTRY

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
ROOTS = st.dictionaries(NAMES, DATA, max_size=3)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
LITERALS = st.sampled_from(
    ["`1`", "`1.0`", "`true`", "`null`", "`[]`", "'x'", "'a'", '`{"a": 1}`']
)


def calls(inner):
    return st.one_of(
        [
            st.tuples(
                *[
                    inner.map("&{}".format) if "expression" in types else inner
                    for types in one.takes
                ]
            )
            .map(", ".join)
            .map(f"{name}({{}})".format)
            for name, one in REGISTRY.items()
        ]
    )


def larger(inner, names=NAMES):
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, names).map("({0[0]}).{0[1]}".format),
        st.tuples(inner, st.sampled_from(["[0]", "[-1]", "[]", "[*]", "[1:]", ".*"])).map(
            "({0[0]}){0[1]}".format
        ),
        pair.map("({0[0]})[?{0[1]}]".format),
        pair.map("({0[0]})[*].[{0[1]}]".format),
        pair.map("({0[0]}) || ({0[1]})".format),
        pair.map("({0[0]}) && ({0[1]})".format),
        pair.map("({0[0]}) | ({0[1]})".format),
        pair.map("[{0[0]}, {0[1]}]".format),
        pair.map("{{x: {0[0]}, y: {0[1]}}}".format),
        inner.map("!({})".format),
        st.tuples(inner, st.sampled_from(["==", "!=", "<", ">="]), inner).map(
            "({0[0]}) {0[1]} ({0[2]})".format
        ),
        calls(inner),
    )


EXPRESSIONS = st.recursive(NAMES | LITERALS | st.just("@"), larger, max_leaves=6)
PIECES = st.lists(
    st.sampled_from(
        [
            *list("abc.,:@*&|!<>=()[]{}'\"`\\-0 1?\n"),
            "{{",
            "}}",
            "$(",
            "\\{{",
            "length(",
            "{{@}}",
            "\ue000",
        ]
    ),
    max_size=25,
).map("".join)


@given(EXPRESSIONS, DATA)
def test_evaluation_returns_a_value_or_raises_an_evaluation_error(source, data):
    expression = compile_expression(source)
    try:
        expression.search(data)
    except EvaluationError:
        return


@given(st.text(max_size=30) | PIECES)
def test_compilation_returns_an_expression_or_raises_invalid_policy(source):
    try:
        expression = compile_expression(source, location="here")
    except InvalidPolicy as error:
        assert error.location == "here"  # noqa: PT017 - other errors shall come through
    else:
        assert expression.source == source


@given(
    st.recursive(
        NAMES | LITERALS,
        lambda inner: st.one_of(
            st.tuples(inner, NAMES).map("({0[0]}).{0[1]}".format),
            st.tuples(inner, st.sampled_from(["[0]", "[-1]", "[]", "[*]", "[1:]"])).map(
                "({0[0]}){0[1]}".format
            ),
            st.tuples(inner, inner).map("({0[0]})[?{0[1]}]".format),
            st.tuples(inner, inner).map("({0[0]}) || ({0[1]})".format),
            st.tuples(inner, inner).map("({0[0]}) && ({0[1]})".format),
            st.tuples(inner, inner).map("({0[0]}) | ({0[1]})".format),
            st.tuples(inner, inner).map("[{0[0]}, {0[1]}]".format),
            inner.map("!({})".format),
        ),
        max_leaves=6,
    ),
    ROOTS,
)
def test_without_missing_keys_results_equal_those_of_jmespath(source, data):
    try:
        result = compile_expression(source).search(data)
    except EvaluationError:
        return
    assert result == jmespath.search(source, data)


@given(EXPRESSIONS, ROOTS)
def test_an_expression_reads_only_its_roots(source, data):
    expression = compile_expression(source)
    kept = (
        data
        if "@" in expression.roots
        else {key: data[key] for key in data if key in expression.roots}
    )
    assert outcome(expression, kept) == outcome(expression, data)


@given(EXPRESSIONS, ROOTS)
def test_an_expression_reads_only_its_paths(source, data):
    expression = compile_expression(source)
    assert outcome(expression, project(data, expression.reads)) == outcome(expression, data)


def outcome(expression, data):
    try:
        return repr(expression.search(data))
    except EvaluationError as error:
        return error.__class__, str(error)


def project(value, paths):
    """Return the parts of a value that lie on the paths, as a projected trigger keeps them."""
    if () in paths or not isinstance(value, dict):
        return value
    children = {}
    for path in paths:
        children.setdefault(path[0], set()).add(path[1:])
    return {key: project(item, children[key]) for key, item in value.items() if key in children}


@given(DOCUMENTS)
def test_a_document_without_variables_stays_as_it_is(document):
    if "{{" in repr(document) or "$(" in repr(document):
        return
    template = compile_template(document)
    assert template.constant
    result = template.render(Context({}))
    assert repr(result) == repr(document)
    assert result is not document or not isinstance(document, dict | list)


@given(DOCUMENTS)
def test_a_substituted_value_is_unchanged(value):
    context = Context({"value": value, "name": value if isinstance(value, str) else "n"})
    assert repr(compile_template({"a": ["{{ value }}"]}).render(context)) == repr({"a": [value]})
    inside = compile_template("<{{ name }}>{{ '{{ name }}' }}").render(context)
    assert inside == f"<{context.data['name']}>{context.data['name']}"


@given(PIECES | st.text(max_size=20), ROOTS)
def test_any_text_is_rendered_or_refused_with_its_location(text, data):
    try:
        template = compile_template({"key": [text]}, location="here")
    except InvalidPolicy as error:
        assert error.location == "here.key[0]"  # noqa: PT017 - other errors shall come through
        return
    try:
        result = template.render(Context(data))
    except EvaluationError:
        return
    assert template.constant is not braces.contains(text)
    assert list(result) == ["key"]


@given(DATA, DATA)
def test_equality_is_symmetric_and_reflexive(left, right):
    data = {"a": left, "b": right}
    forth, back = (compile_expression(text).search(data) for text in ("a == b", "b == a"))
    assert forth is back
    assert compile_expression("a == a").search(data) is True
