"""Types of values."""

from typing import Any

from reconciler.languages.gotemplate.signature import ANY, STRING, Family, family, function, plain
from reconciler.languages.gotemplate.values import deep_equal, kind, type_name


def _type_is_like(wanted: str, value: Any) -> bool:
    return type_name(value) in {wanted, f"*{wanted}"}


FUNCTIONS: Family = family(
    {
        "typeOf": plain(type_name, ANY),
        "typeIs": plain(lambda wanted, value: type_name(value) == wanted, STRING, ANY),
        "typeIsLike": plain(_type_is_like, STRING, ANY),
        "kindOf": plain(kind, ANY),
        "kindIs": plain(lambda wanted, value: kind(value) == wanted, STRING, ANY),
        "deepEqual": function(lambda run, one, other: deep_equal(one, other, run.visit), ANY, ANY),
    }
)
