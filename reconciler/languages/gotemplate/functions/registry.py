"""The Sprig functions that templates may call, and the reasons why others are refused."""

from collections.abc import Mapping
from typing import Final

from reconciler.languages.gotemplate.functions import (
    casing,
    defaults,
    dicts,
    encodings,
    jsontext,
    lists,
    numbers,
    paths,
    random,
    reflection,
    regexes,
    strings,
    times,
    urls,
    versions,
)
from reconciler.languages.gotemplate.signature import Function

_FAMILIES = (
    casing,
    random,
    defaults,
    dicts,
    encodings,
    jsontext,
    lists,
    numbers,
    paths,
    reflection,
    regexes,
    strings,
    times,
    urls,
    versions,
)

FUNCTIONS: Final[Mapping[str, Function]] = {
    name: function for family in _FAMILIES for name, function in family.FUNCTIONS.items()
}

_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("env", "expandenv"), "it reads the environment of the process"),
    "getHostByName": "it queries DNS",
    **dict.fromkeys(
        (
            "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert",
            "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey",
            "buildCustomCert",
        ),
        "templates must not generate keys or certificates",
    ),
    **dict.fromkeys(
        ("bcrypt", "htpasswd", "derivePassword", "encryptAES", "decryptAES"),
        "templates must not derive passwords or encrypt data",
    ),
}  # fmt: skip


def why_unknown(name: str) -> str:
    """Return the error message for a function that cannot be called."""
    if name in _REFUSED:
        return f"the function {name} cannot be used here: {_REFUSED[name]}"
    return f"there is no function {name}"
