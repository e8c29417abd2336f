import pytest

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages.jmespath import braces, references
from reconciler.languages.jmespath.images import find_images, split_image


def bodies(text):
    return [[one.body for one in outer.walk()] for outer in braces.find(text, passes=8)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable { { }}", []),
        ("{{ a }}", [["a"]]),
        ("{{a}}{{b}}", [["a"], ["b"]]),
        ("x {{- a }} y {{b}} z", [["a"], ["b"]]),
        ('{{ a."{{ b }}".{{c}} }}', [["b", "c", 'a."{{ b }}".{{c}}']]),
        ("{{ {x: a} }}", [["{x: a}"]]),
        ("\\{{ a }} {{ b }}", [["b"]]),
        ("\\{{ a.{{ b }} }}", [["b"]]),
        ("{{ open", []),
    ],
)
def test_variables_are_found_in_a_text(text, expected):
    assert bodies(text) == expected


def test_a_variable_has_its_position_in_the_text():
    text = "ab{{-  c.{{ d }}  }}e"
    (variable,) = braces.find(text, passes=8)
    assert variable.shallow
    assert text[variable.start : variable.end] == "{{-  c.{{ d }}  }}"
    assert text[variable.offset :].startswith(variable.body)
    (inner,) = variable.inner
    assert text[inner.start : inner.end] == "{{ d }}"


def test_variables_nested_too_deeply_are_refused():
    with pytest.raises(InvalidPolicy, match="nested deeper than 8 levels"):
        braces.find("{{ a." * 9 + "b" + " }}" * 9, passes=8)


@pytest.mark.parametrize(
    ("reference", "at", "expected"),
    [
        ("../b", "/spec/a", "/spec/b"),
        ("./../b/./c", "/a", "/b/c"),
        ("../../../../b", "/a", "/b"),
        ("/x/y", "/a", "/x/y"),
    ],
)
def test_a_reference_is_resolved_to_an_absolute_path(reference, at, expected):
    assert references.absolute_path(reference, at) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(../name)", "ann"),
        ("x-$(../name)-$(/list/1)", "x-ann-two"),
        ("$(<=../number)", "<=7"),
        ("$(../deep/key)", "inside"),
        ("\\$(HOME) and $HOME", "$(HOME) and $HOME"),
        ("$(two words)", "$(two words)"),
    ],
)
def test_references_are_replaced_by_the_text_at_their_path(text, expected):
    document = {
        "at": text,
        "name": "ann",
        "number": 7,
        "+(deep)": {"(key)": "inside"},
        "list": ["one", "two"],
    }
    assert references.resolve(text, document, "/at", location="spec") == expected


@pytest.mark.parametrize("text", ["$(../number)", "$(../absent)", "$(/list/9)", "$(HOME)"])
def test_a_reference_without_a_text_at_its_path_is_refused(text):
    document = {"at": text, "number": 7, "list": []}
    with pytest.raises(InvalidPolicy, match="not resolved at path /at") as failure:
        references.resolve(text, document, "/at", location="spec.at")
    assert failure.value.location == "spec.at"
    assert f"write \\{text} for plain text" in failure.value.reason


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("redis", ("docker.io", "redis", "redis", "latest", None)),
        ("shop/cart:2.0", ("docker.io", "shop/cart", "cart", "2.0", None)),
        ("localhost/cart", ("localhost", "cart", "cart", "latest", None)),
        ("host:5000/a/b", ("host:5000", "a/b", "b", "latest", None)),
        (f"quay.example/a/b@{DIGEST}", ("quay.example", "a/b", "b", None, DIGEST)),
        (f"a/b:1@{DIGEST}", ("docker.io", "a/b", "b", "1", DIGEST)),
    ],
)
def test_an_image_is_split_into_its_parts(image, parts):
    found = split_image(image)
    assert tuple(found.get(key) for key in ("registry", "path", "name", "tag", "digest")) == parts


def test_an_image_has_its_full_references():
    assert split_image("cart:2")["reference"] == "docker.io/cart:2"
    found = split_image(f"cart:2@{DIGEST}")
    assert found["reference"] == f"docker.io/cart@{DIGEST}"
    assert found["referenceWithTag"] == "docker.io/cart:2"


@pytest.mark.parametrize("image", ["", "a b", "cart:", "/cart", "docker.io/", "a" * 2000])
def test_an_invalid_image_is_an_error(image):
    with pytest.raises(EvaluationError, match="invalid reference format"):
        split_image(image)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Pod", ["spec"]),
        ("Deployment", ["spec", "template", "spec"]),
        ("CronJob", ["spec", "jobTemplate", "spec", "template", "spec"]),
    ],
)
def test_images_are_listed_by_container_name(kind, path):
    inside = {
        "containers": [{"name": "main", "image": "shop/cart"}, {"name": "bare"}],
        "initContainers": [{"name": "first", "image": "prepare:1"}],
    }
    for key in reversed(path):
        inside = {key: inside}
    images = find_images({"kind": kind, **inside})
    assert set(images) == {"containers", "initContainers"}
    assert set(images["containers"]) == {"main"}
    pointer = "/".join(["", *path, "containers", "0", "image"])
    assert images["containers"]["main"]["jsonPointer"] == pointer


def test_kinds_without_containers_have_no_images():
    assert find_images({"kind": "ConfigMap", "spec": {}}) is None
    assert find_images(None) is None
    assert find_images({"kind": "Pod"}) == {}
