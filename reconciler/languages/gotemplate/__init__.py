"""Go templates: text/template of Go 1.19 with the functions of Sprig 3.2."""

from reconciler.languages.gotemplate.faults import TemplateSyntaxError
from reconciler.languages.gotemplate.limits import DEFAULT_LIMITS, Limits
from reconciler.languages.gotemplate.template import BUILTIN, SPRIG, Template, compile  # noqa: A004
from reconciler.languages.gotemplate.values import Int, Pointer, Record

__all__ = [
    "BUILTIN",
    "DEFAULT_LIMITS",
    "SPRIG",
    "Int",
    "Limits",
    "Pointer",
    "Record",
    "Template",
    "TemplateSyntaxError",
    "compile",
]
