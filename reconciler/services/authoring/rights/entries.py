"""Which rights the context entries of a rule need: of ConfigMaps, and of calls to the API server.

A GlobalContextEntry needs none of who reads it: whoever made it gave its data to all rules.
"""

from collections.abc import Iterator

from reconciler.api.meta import CONFIG_MAPS
from reconciler.api.rights import Right
from reconciler.engine.context import Context
from reconciler.engine.entries import ApiCallEntry, ConfigMapEntry
from reconciler.engine.program import Program
from reconciler.engine.variables import Template
from reconciler.services.authoring.lint.firing import entry_lists
from reconciler.services.authoring.rights.need import Need
from reconciler.services.catalog.protection import parse_path, segments

_NOTHING = Context({})
_VARIABLE = "{}"
_ANY = "*"


def entry_needs(program: Program) -> Iterator[Need]:
    """Yield the rights that the context entries of a rule need, wherever they stand."""
    for place, entries in entry_lists(program):
        for index, entry in enumerate(entries):
            match entry:
                case ConfigMapEntry():
                    right = _of_config_map(entry)
                case ApiCallEntry() if entry.outline:
                    right = _of_call(entry)
                case _:
                    continue
            yield Need(location=f"{place}[{index}]", options=(right,))


def _of_config_map(entry: ConfigMapEntry) -> Right:
    home = entry.bound or (entry.home if entry.namespace is None else _constant(entry.namespace))
    return Right.of("get", CONFIG_MAPS, namespace=home, name=_constant(entry.config_map))


def _of_call(entry: ApiCallEntry) -> Right:
    meant = parse_path(segments(entry.outline))
    if meant is None:
        # Only values tell what it reads, within the namespace of a Policy.
        verb = "get" if entry.method == "GET" else "create"
        return Right(verb=verb, group=_ANY, resource=_ANY, namespace=entry.bound)
    verb = "create" if entry.method != "GET" else "get" if meant.name else "list"
    return Right(
        verb=verb,
        group=_known(meant.group, otherwise=_ANY),
        resource=_known(meant.resource, otherwise=_ANY),
        subresource=_known(meant.subresource, otherwise=_ANY),
        namespace=entry.bound or _known(meant.namespace),
        name=_known(meant.name),
    )


def _known(text: str, *, otherwise: str = "") -> str:
    return otherwise if _VARIABLE in text else text


def _constant(template: Template) -> str:
    return str(template.render(_NOTHING)) if template.constant else ""
