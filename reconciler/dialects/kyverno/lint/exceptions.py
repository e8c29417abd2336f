"""Findings for the author of a PolicyException, which is checked against the given policies."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from reconciler.api.meta import Object
from reconciler.dialects.finding import Finding, invalid, note, warning
from reconciler.dialects.kyverno.autogen import PREFIXES
from reconciler.dialects.kyverno.exception import compile_exception
from reconciler.engine.values.wildcard import compile_wildcard
from reconciler.errors import InvalidPolicy


def lint_exception(obj: Object, rules: Mapping[str, AbstractSet[str]]) -> tuple[Finding, ...]:
    """Return all findings about an exception.

    Args:
        obj: As decoded from its file.
        rules: Names of rules by the keys of the known policies.
    """
    try:
        compiled = compile_exception(obj)
    except InvalidPolicy as error:
        return tuple(map(invalid, (error, *error.others)))
    warnings = (warning("not-acted-on", "spec", text) for text in compiled.warnings)
    return *warnings, *_unknown(obj, rules)


def _unknown(obj: Object, rules: Mapping[str, AbstractSet[str]]) -> Iterator[Finding]:
    for index, item in enumerate(obj["spec"]["exceptions"]):
        place, policy = f"spec.exceptions[{index}]", item["policyName"]
        if policy not in rules:
            yield note(
                "unknown-policy",
                f"{place}.policyName",
                f"the given files contain no policy {policy}",
                "a Policy is named with its namespace: namespace/name",
            )
            continue
        for number, name in enumerate(item["ruleNames"]):
            if not name.startswith(PREFIXES) and not any(
                map(compile_wildcard(name), rules[policy])
            ):
                yield warning(
                    "unknown-rule",
                    f"{place}.ruleNames[{number}]",
                    f"no rule of policy {policy} has a name like {name}",
                    f"its rules are {', '.join(sorted(rules[policy]))}",
                )
