"""Laws of shortcuts: result and counted steps are the same as those of the full evaluation."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.shape import object_fault
from reconciler.engine.allowance import Allowance
from reconciler.engine.patch import apply_merge_patch
from reconciler.errors import EvaluationError
from reconciler.languages import gotemplate
from reconciler.languages.gotemplate import DEFAULT_LIMITS, SPRIG, Limits, Pointer, Record
from reconciler.languages.gotemplate.direct import parts_of
from reconciler.languages.gotemplate.evaluator import Rendering
from reconciler.languages.gotemplate.limits import Run
from reconciler.languages.gotemplate.parser import parse
from reconciler.languages.gval import compile_expression
from reconciler.services.admitting.growth import Growth

NAMES = st.sampled_from(["kind", "a", "b", "labels", "gone"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([1.5, 1e6]), st.text(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
STEPS = st.sampled_from([1 << 40, *range(150, 900, 10)])

TEXTS = st.text(alphabet="ab \"'\n:#é", max_size=6)
FIELDS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: f".{'.'.join(names)}")
ACTIONS = st.builds("{{{{ {}{} }}}}".format, st.sampled_from(["", ".Target"]), FIELDS)
TEMPLATES = st.lists(TEXTS | ACTIONS, max_size=4).map("".join)


def outcome(work: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the result of an evaluation, or its error."""
    try:
        return ("gives", work())
    except EvaluationError as error:
        return type(error), str(error), error.without_values


@given(
    text=TEMPLATES,
    document=DOCUMENTS,
    steps=STEPS,
    limits=st.sampled_from([DEFAULT_LIMITS, Limits(output=5), Limits(steps=150)]),
)
def test_rendering_a_template_of_fields_agrees_with_the_evaluator(
    text: str, document: Any, steps: int, limits: Limits
) -> None:
    fields = {"Target": Pointer(document), **document}
    data = Record("*core.Context", fields)
    parsed = parse(text, known=SPRIG, unknown=str, limits=limits)
    assert parts_of(parsed.body) is not None
    long, short = Allowance(steps), Allowance(steps)

    def evaluated() -> str:
        run = Run(limits, long)
        try:
            return Rendering(text, SPRIG, {}, run).render(parsed.body, data)
        finally:
            run.settle()

    template = gotemplate.compile(text, limits=limits)
    assert outcome(lambda: template.render(data, allowance=short)) == outcome(evaluated)
    assert short.left == long.left


@given(
    text=st.sampled_from(
        ["{{ if .a }}b{{ end }}", "{{ .a | upper }}", "{{ $x := .a }}", "{{ . }}"]
    )
)
def test_templates_with_other_actions_have_no_shortcut(text: str) -> None:
    parsed = parse(text, known=SPRIG, unknown=str, limits=DEFAULT_LIMITS)
    assert parts_of(parsed.body) is None


KEYS = NAMES.map(lambda name: f".{name}") | st.sampled_from(['["a"]', "[0]", "[1]", '["0"]'])


@given(
    source=st.lists(KEYS, max_size=4).map(lambda keys: "".join(["$", *keys])),
    document=VALUES,
    steps=STEPS,
)
def test_following_a_path_of_known_keys_agrees_with_evaluation(
    source: str, document: Any, steps: int
) -> None:
    expression = compile_expression(source)
    assert expression.follow is not None
    plain = replace(expression, follow=None)
    long, short = Allowance(steps), Allowance(steps)
    assert outcome(lambda: expression.evaluate(document, short)) == outcome(
        lambda: plain.evaluate(document, long)
    )
    assert short.left == long.left


@given(source=st.sampled_from(["$.a[*]", "$..a", "a", "$.a == 1", "$[$.a]", "1", "$.a[0:1]"]))
def test_expressions_other_than_simple_paths_have_no_shortcut(source: str) -> None:
    assert compile_expression(source).follow is None


TEXT_MAPS = st.dictionaries(NAMES, st.text(max_size=2) | SCALARS, max_size=3) | SCALARS
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=2) | SCALARS,
        "uid": st.text(max_size=2) | SCALARS,
        "labels": TEXT_MAPS,
        "annotations": TEXT_MAPS,
    },
)


@given(
    value=st.fixed_dictionaries(
        {}, optional={"kind": st.text(max_size=2) | SCALARS, "metadata": METADATA | SCALARS}
    )
)
def test_a_dict_and_an_equal_mapping_have_the_same_fault(value: Any) -> None:
    assert object_fault(value, "it") == object_fault(MappingProxyType(value), "it")


@given(
    original=DOCUMENTS,
    patches=st.lists(st.tuples(DOCUMENTS, st.booleans()), max_size=6),
    allowed=st.integers(0, 60),
    small=st.sampled_from([0, 20, 1 << 10]),
)
def test_the_size_check_agrees_with_serializing_the_object_each_time(
    original: Any, patches: Any, allowed: int, small: int
) -> None:
    growth, before = Growth(original, allowed=allowed, small=small), original
    for patch, is_kept in patches:
        after = apply_merge_patch(before, patch)
        size, begun = (len(orjson.dumps(value)) for value in (after, original))
        is_large = size > allowed and size - begun > allowed
        fault = growth.fault(before, after)
        assert bool(fault) is is_large
        assert not is_large or f"from {begun} to {size} bytes" in fault
        # A result that is too large is not kept, and a policy's change may be taken back.
        if is_kept and not fault:
            before = after
