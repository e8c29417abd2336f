import pytest

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("cart", "docker.io/cart:latest"),
        ("shop/cart:2.0", "docker.io/shop/cart:2.0"),
        ("localhost:5000/cart", "localhost:5000/cart:latest"),
        (f"quay.example/cart:1@{DIGEST}", f"quay.example/cart@{DIGEST}"),
    ],
)
def test_an_image_gets_its_registry_and_tag(run, image, expected):
    assert run("image_normalize(image)", image=image) == expected


@pytest.mark.parametrize(
    ("image", "full"), [("Cart:1", "docker.io/Cart:1"), ("quay.example/a b", "quay.example/a b")]
)
def test_an_invalid_image_is_an_error(fails, image, full):
    assert fails("image_normalize(image)", image=image) == (
        f"JMESPath function 'image_normalize': bad image: {full}, defaultRegistry: docker.io,"
        " enableDefaultRegistryMutation: true: invalid reference format"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://127.8.8.8/x", False),
        ("https://172.31.255.255:8443", False),
        ("https://172.32.0.1", True),
        ("https://192.168.7.7", False),
        ("https://[::ffff:10.0.0.1]/", False),
        ("https://[fe80::1]/", True),
        ("https://user@1.1.1.1/", True),
    ],
)
def test_addresses_are_classified_as_external_or_internal(run, url, expected):
    assert run("is_external_url(url)", url=url) is expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://in.example", "only addresses are looked at here"),
        ("10.0.0.1", "not a URL with a host"),
        ("http://[::1", "not a URL with a host"),
        ("http://[fe80::1%25eth0]/", "only addresses are looked at here"),
        ("", "not a URL with a host"),
    ],
)
def test_a_url_without_an_address_is_refused(fails, url, reason):
    assert reason in fails("is_external_url(url)", url=url)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ""),
        ("a//b/./c/", "a/b/c"),
        ("a/b/../../..", ".."),
        ("a/..", "."),
        ("../../a", "../../a"),
        ("/../a/../..", "/"),
        ("//a", "/a"),
    ],
)
def test_a_path_is_canonicalized(run, path, expected):
    assert run("path_canonicalize(path)", path=path) == expected
