"""What the author of a policy should know that only its text shows."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.dialects.finding import Finding, Level
from reconciler.engine.program import CompiledPolicy

_REFERENCES: Final = (
    ("overriders", "template", "valueRef"),
    ("template", "condition", "valueRef"),
    ("template", "condition", "dataRef"),
)
_AUTHORIZATION: Final = "authorization"


def find_surprises(policy: Object, compiled: CompiledPolicy) -> Iterator[Finding]:
    """Yield what is not wrong, and hardly as meant."""
    for location, _ in compiled.cue:
        yield Finding(
            level=Level.NOTE,
            code="cue",
            location=location,
            text="it is evaluated only by programs that are started with --cue",
            cure="write template or plaintext, or start both programs with the command cue",
        )
    for place, http in _calls(policy["spec"]):
        auth, header = http.get("auth") or {}, http.get("header") or {}
        secret = next((name for name in ("staticToken", "password") if auth.get(name)), "")
        where = f"auth.{secret}" if secret else ""
        for name in header:
            where = f"header.{name}" if name.lower() == _AUTHORIZATION else where
        if where:
            yield Finding(
                level=Level.WARNING,
                code="credentials",
                location=f"{place}.http.{where}",
                text="whoever may read the policy can read it",
                cure="let the service know the programs by the network, or keep the policy from"
                " those who must not know it",
            )


def _calls(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the text of each reference to a service."""
    for field in ("overrideRules", "validateRules"):
        for index, rule in enumerate(spec.get(field) or ()):
            for path in _REFERENCES:
                found = rule
                for step in path:
                    found = (found or {}).get(step)
                if isinstance(found, Mapping) and found.get("from") == "http":
                    yield f"spec.{field}[{index}].{'.'.join(path)}", found["http"]
