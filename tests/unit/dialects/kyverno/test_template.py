import pytest

from reconciler.dialects.kyverno.parts import with_images
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.allowance import Allowance
from reconciler.engine.context import Context
from reconciler.engine.values.wildcard import escape
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath.limits import DEFAULT_LIMITS

HOSTILE = "\"'`\\ || request.userInfo }}{{ \\{{ *"
CONTEXT = Context(
    {
        "request": {
            "object": {
                "metadata": {"name": "cart", "labels": {"team": "shop", "a/b": "slash"}},
                "spec": {"replicas": 3, "ratio": 2.0, "on": False, "none": None},
                "hostile": HOSTILE,
                "keyed": {HOSTILE: "found"},
            },
            "userInfo": {"username": "ann"},
        },
        "index": 1,
        "list": ["zero", "one"],
        "pathText": "metadata.labels",
        "star": "*",
        "empty": "",
    }
)


def render(document, context=CONTEXT):
    return compile_template(document).render(context)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ request.object.metadata.name }}", "cart"),
        ("{{request.object.spec.replicas}}", 3),
        ("{{ request.object.spec.ratio }}", 2.0),
        ("{{ request.object.spec.on }}", False),
        ("{{ request.object.spec.none }}", None),
        ("{{ request.object.metadata.labels }}", {"team": "shop", "a/b": "slash"}),
        (" {{ request.object.spec.replicas }}", " 3"),
        ("{{ request.object.spec.ratio }}x", "2x"),
        ("<{{ request.object.spec.none }}>", "<null>"),
        ("<{{ list }}>", '<["zero","one"]>'),
        ("{{ request.object.metadata.name }}{{ index }}", "cart1"),
        ("{{ empty }}{{ index }}", "1"),
        ("{{ request.object.metadata.labels.owner || 'nobody' }}", "nobody"),
        ("{{ list[9] }}", None),
        ("{{- request.object.metadata.name }}!", "cart!"),
        ("{{- index }}", 1),
        ("\\{{ index }} {{ index }}", "{{ index }} 1"),
        ("{{ open", "{{ open"),
    ],
)
def test_variables_in_a_string_are_rendered(text, expected):
    result = render(text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ request.object.metadata.labels.\"{{ star }}\" || 'none' }}", "none"),
        ("{{ list[{{ index }}] }}", "one"),
        ("{{ request.object.{{ pathText }}.team }}", "shop"),
        ("{{ {{ pathText }} || 'nothing' }}", "nothing"),
        ("{{ contains('{{ request.object.metadata.name }}s', 'arts') }}", True),
        ('{{ `["{{ request.object.metadata.name }}", {{ index }}]`[0] }}', "cart"),
        ("{{ length(`{{ list }}`) }}", 2),
        ("{{ list[?@ == '{{ list[{{ index }}] }}'] }}", ["one"]),
        ('{{ {"{{ request.object.metadata.name }}": index} }}', {"cart": 1}),
    ],
)
def test_nested_variables_are_rendered(text, expected):
    assert render(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ request.object.hostile }}",
        "{{- request.object.hostile }}",
        "{{ '{{ request.object.hostile }}' }}",
        '{{ `"{{ request.object.hostile }}"` }}',
        "{{ request.object.hostile }}{{ empty }}",
    ],
)
def test_the_value_of_a_variable_is_never_evaluated_again(text):
    assert render(text) == HOSTILE


def test_hostile_text_is_one_key_inside_quotes():
    assert render('{{ request.object.keyed."{{ request.object.hostile }}" }}') == "found"


@pytest.mark.parametrize(
    "text",
    ["{{ request.{{ request.object.hostile }} }}", "{{ {{ star }} }}", "{{ list[{{ star }}] }}"],
)
def test_only_a_path_or_a_number_from_data_is_accepted_outside_of_quotes(text):
    with pytest.raises(EvaluationError, match="write the variable inside quotes"):
        render(text)


def test_keys_and_values_of_a_document_are_rendered_at_every_level():
    document = {
        "metadata": {
            "name": "{{ request.object.metadata.name }}-{{ index }}",
            "labels": {"fixed": "yes", "{{ request.userInfo.username }}": "key"},
        },
        "list": [1, ["{{ index }}"], {"deep": "{{ list }}"}],
        "\\{{ kept }}": None,
    }
    assert render(document) == {
        "metadata": {"name": "cart-1", "labels": {"fixed": "yes", "ann": "key"}},
        "list": [1, [1], {"deep": ["zero", "one"]}],
        "{{ kept }}": None,
    }


def test_keys_keep_their_order():
    document = {"z": "{{ index }}", "a": 1, "m": {"x": 1}, "b": "{{ index }}"}
    assert list(render(document)) == ["z", "a", "m", "b"]


def test_changing_a_rendered_document_does_not_affect_later_renderings():
    template = compile_template({"a": {"b": [1]}, "c": "{{ list }}", "d": ["{{ index }}"]})
    for _ in range(2):
        result = template.render(CONTEXT)
        assert result == {"a": {"b": [1]}, "c": ["zero", "one"], "d": [1]}
        result["a"]["b"].append(2)
        result["c"].append(3)
        result["d"].append(4)
    assert CONTEXT.data["list"] == ["zero", "one"]


def test_a_template_reports_the_expressions_and_fields_that_it_reads():
    template = compile_template({"a": "{{ request.object.metadata.name }}", "b": ["{{ x.y }}"]})
    assert [one.source for one in template.expressions] == ["request.object.metadata.name", "x.y"]
    assert template.roots == {"request", "x"}
    assert template.reads == {("request", "object", "metadata", "name"), ("x", "y")}
    assert not template.constant
    assert not template.dynamic


def test_a_template_without_variables_is_constant():
    template = compile_template({"a": ["\\{{ b }}", 1]})
    assert template.constant
    assert template.roots == frozenset()
    assert template.render(Context({})) == {"a": ["{{ b }}", 1]}


@pytest.mark.parametrize(
    ("text", "reads", "dynamic"),
    [
        ('{{ a.b."{{ c.d }}".e }}', {("a", "b"), ("c", "d")}, False),
        ("{{ a.b.{{ c.d }}.e }}", {("a", "b"), ("c", "d")}, False),
        ("{{ a[{{ c }}].b }}", {("a",), ("c",)}, False),
        ("{{ to_string('{{ c }}') }}", {("c",)}, False),
        ("{{ {{ c }} }}", {(), ("c",)}, True),
        ('{{ "{{ c }}" }}', {(), ("c",)}, True),
    ],
)
def test_nested_variables_report_the_fields_that_they_read(text, reads, dynamic):
    template = compile_template(text)
    assert template.reads == reads
    assert template.dynamic is dynamic


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"a": {"b/c": ["{{ request.object.absent }}"]}},
            'resolve request.object.absent at path spec.a["b/c"][0]: Unknown key "absent" in path',
        ),
        (
            {"a": "{{ list[?@ == '{{ absent }}'] || 'x' }}"},
            "|| 'x' at path spec.a: failed to resolve absent: Unknown key \"absent\" in path",
        ),
        (
            {"a": "{{ split('{{ absent }}', ',')[] }}"},
            "spec.a: failed to resolve absent: Unknown key",
        ),
        ({"a": "{{- index }}!"}, "a variable written {{- }} must resolve to a string"),
        ({"{{ index }}": 1}, 'expected string after substituting variables in key "{{ index }}"'),
        ({"{{ star }}": 1, "*": 2}, 'two keys become "*" after substituting variables'),
        ({"a": "{{ `{{ star }}` }}"}, "is not JSON once its variables are put in"),
    ],
)
def test_a_variable_that_cannot_be_resolved_is_an_error_with_its_path(document, message):
    template = compile_template(document, location="spec")
    with pytest.raises(EvaluationError) as failure:
        template.render(CONTEXT)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("document", "location", "reason"),
    [
        ({"a": ["{{ b. }}"]}, "spec.a[0]", "column 3: the expression ends too early"),
        ({"a": "{{ }}"}, "spec.a", "the expression is empty"),
        ({"a": "{{ soon(b) }}"}, "spec.a", "column 1: unknown function: soon"),
        ({"{{ b. }}": 1}, 'spec["{{ b. }}"]', "ends too early"),
        ({"a": "{{ 'x' {{ b }} }}"}, "spec.a", "column 5: unexpected '{'"),
        ({"a": "{{ a.'{{ b }}' }}"}, "spec.a", "column 3: unexpected"),
        ({"a": "$(absent)"}, "spec.a", "reference $(absent) not resolved at path /a"),
        ("{{ a." * 70 + "b" + " }}" * 70, "spec", "nested deeper than 64 levels"),
    ],
)
def test_a_template_that_cannot_be_compiled_is_refused_with_its_location(
    document, location, reason
):
    with pytest.raises(InvalidPolicy) as failure:
        compile_template(document, location="spec")
    assert failure.value.location == location
    assert reason in failure.value.reason


def test_a_document_that_is_too_deep_is_refused():
    deep = "x"
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(InvalidPolicy, match="nested too deeply"):
        compile_template(deep)


def test_output_is_limited():
    long = CONTEXT.bind(list=["x" * DEFAULT_LIMITS.output])
    with pytest.raises(EvaluationError, match=f"longer than {DEFAULT_LIMITS.output} characters"):
        render("{{ list }}!", long)


HERE = {"metadata": {"name": "{{ @ }}-x", "list": ["{{ @ }}"]}}


def test_at_sign_reads_the_same_place_in_the_trigger():
    context = Context({"request": {"object": {"metadata": {"name": "t", "list": [7]}}}})
    assert render(HERE, context) == {"metadata": {"name": "t-x", "list": [7]}}


def test_at_sign_reads_the_same_place_in_the_target_if_there_is_one():
    context = CONTEXT.bind(target={"metadata": {"name": "u", "list": []}})
    template = compile_template(HERE)
    assert template.render(context) == {"metadata": {"name": "u-x", "list": [None]}}
    assert ("target", "metadata", "name") in template.reads
    assert ("target", "metadata", "list") in template.reads


def test_at_sign_can_be_relative_to_a_given_place():
    template = compile_template("{{ @ }}", at=("request", "x"))
    context = CONTEXT.bind(target={"request": {"x": 5}})
    assert template.render(context) == 5


def test_at_sign_is_an_error_if_the_place_is_missing():
    with pytest.raises(EvaluationError, match=r'resolve @ at path a\.b: Unknown key "a" in path'):
        render({"a": {"b": "{{ @ }}"}})


@pytest.mark.parametrize(
    "document",
    [{"(a)": "{{ @ }}"}, {"+(a)": {"b": "{{ @ }}"}}, {"{{ @ }}": 1}, {"{{ star }}": ["{{@}}"]}],
)
def test_at_sign_is_refused_where_the_place_is_unknown(document):
    with pytest.raises(InvalidPolicy, match="write the whole path"):
        compile_template(document)


def test_at_sign_is_refused_in_documents_that_are_not_patches():
    with pytest.raises(InvalidPolicy, match="only in a patch"):
        compile_template("{{ '{{ @ }}' }}", at=None)


def test_a_reference_copies_the_variables_of_the_value_it_names():
    document = {"a": "$(../b)", "b": "{{ request.object.metadata.name }}", "$(../b)": 1}
    assert render(document) == {"a": "cart", "b": "cart"} | {"cart": 1}


def test_a_literal_rendering_escapes_only_values_from_data():
    template = compile_template("*-{{ star }}-\\{{")
    assert template.render_literal(CONTEXT, escape=str.upper) == "*-*-{{"
    assert template.render_literal(CONTEXT, escape=escape) == f"*-{escape('*')}-{{{{"
    assert compile_template("{{ index }}").render_literal(CONTEXT, escape=escape) == "1"
    assert compile_template("").render_literal(CONTEXT, escape=escape) == ""


@pytest.mark.parametrize("document", ["{{ list }}", "x-{{ request.object.spec.none }}", 5, ["a"]])
def test_a_literal_rendering_accepts_only_strings(document):
    with pytest.raises(EvaluationError, match="expected a string here"):
        compile_template(document).render_literal(CONTEXT, escape=escape)


def test_images_are_available_if_data_decides_the_first_name():
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "main", "image": "cart:1"}]}}
    data = {"request": {"object": pod}, "which": "images.containers.main.tag"}
    context = with_images(Context(data))
    assert render("{{ {{ which }} }}", context) == "1"


class TestWhatTextCosts:
    """The values of variables count as steps at each place where they are inserted."""

    @staticmethod
    def steps(document, root):
        allowance = Allowance()
        before = allowance.left
        template = compile_template(document, location="x")
        template.render(Context(root).within(allowance))
        return before - allowance.left

    @pytest.mark.parametrize(
        ("text", "texts"),
        [("{{ a }}", 1), ("{{ a }}{{ a }}", 2), ("and {{ a }}", 1), ("{{ m }}", 2)],
    )
    def test_every_inserted_character_costs_at_least_one_step(self, text, texts):
        long = "x" * 10_000
        document = {f"k{number}": text for number in range(20)}
        steps = self.steps(document, {"a": long, "m": {"b": [long, {"c": long}]}})
        assert steps >= 20 * texts * len(long)

    def test_a_rendering_larger_than_any_object_is_an_error(self):
        document = {f"k{number}": "and {{ a }}" for number in range(50)}
        with pytest.raises(EvaluationError, match="more than 33554432 characters"):
            self.steps(document, {"a": "x" * 900_000})
