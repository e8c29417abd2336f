"""The items of a ModRule's ``match``: select expressions and tests of their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.engine.allowance import Allowance
from reconciler.engine.reading import mapping, sequence
from reconciler.engine.values.regexes import Regex, compile_regex, is_found
from reconciler.errors import ErrorList, InvalidPolicy, read_each
from reconciler.languages.gval import (
    UNDEFINED,
    Expression,
    Failure,
    compile_expression,
    faults_of,
    text_of,
    weigh,
)
from reconciler.languages.gval.functions import FUNCTIONS
from reconciler.languages.gval.syntax import Call, Infix, Node, Path, Variable, parts_of

_FIELDS: Final = ("select", "matchFor", "matchValue", "matchValues", "matchRegex", "negate")
_FOR: Final = ("Any", "All")
_FITS: Final = (True, "select returns matching values")
_OTHERS: Final = (False, "select also returns other values")
_NONE: Final = (False, "select returns no matching value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of ``match``.

    Attributes:
        location: Of the item in the rule, as ``spec.match[0]``.
        values: The texts of which a result has to be one; None where the item lists none.
        regex: The pattern that a result has to match, where no values are given.
        every: All results have to fit, as with ``matchFor: All``; otherwise one is enough.
        negate: The item holds where its test fails.
        names_references: The expression reads synthetic references besides the object.
    """

    location: str
    select: Expression
    values: frozenset[str] | None = None
    regex: Regex | None = field(default=None, compare=False)
    every: bool = False
    negate: bool = False
    names_references: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names_references", "syntheticRefs" in self.select.source)

    def why_not(self, view: Mapping[str, Any], allowance: Allowance) -> str:
        """Return why the item does not hold, without values of the object; empty where it holds.

        Raises:
            EvaluationError: The evaluation exceeds the allowance.
        """
        try:
            found = self.select.evaluate(view, allowance)
        except Failure as error:
            held, reason = False, f"select fails: {error}"
        else:
            held, reason = self._holds(found, allowance)
        if held is not self.negate:
            return ""
        return f"{self.location} does not hold: {reason}{' (negate: true)' if self.negate else ''}"

    def _holds(self, found: Any, allowance: Allowance) -> tuple[bool, str]:
        if isinstance(found, bool):
            return found, f"select returns {'true' if found else 'false'}"
        if isinstance(found, list):
            defined = [result for result in found if result is not UNDEFINED]
            if self.every and 0 < len(defined) < len(found):
                return False, "a result of select is undefined"
        else:
            defined = [] if found is None or found is UNDEFINED else [found]
        if not defined:
            return False, "select returns nothing"
        allowance.spend(len(defined))
        for result in defined:
            if not isinstance(result, str):
                weigh(result, allowance.spend)
            # The first result that fits decides; with All, the first that does not.
            if self._fits(text_of(result), allowance) is not self.every:
                return _OTHERS if self.every else _FITS
        return _FITS if self.every else _NONE

    def _fits(self, text: str, allowance: Allowance) -> bool:
        if self.values is not None:
            return text in self.values
        return self.regex is None or matches(self.regex, text, allowance)

    def accepts_text(self, text: str) -> bool:
        """Return whether the item holds if its expression returns a single text."""
        return self._fits(text, Allowance()) is not self.negate


def matches(regex: Regex, text: str, allowance: Allowance) -> bool:
    """Return whether a regular expression matches somewhere in a text."""
    try:
        return is_found(regex, text, allowance.spend)
    except UnicodeError:
        return False


def read_items(raw: Any, location: str) -> tuple[Item, ...]:
    """Read the list of items, all of which have to hold.

    Raises:
        InvalidPolicy: Items are invalid; it holds all errors with their locations.
    """
    items = sequence(raw, location)
    if not items:
        raise InvalidPolicy(location, "at least one item is needed, such as select: $.kind")
    return read_each(_item, items, location)


def _item(raw: Any, location: str) -> Item:
    with ErrorList() as errors:
        fields = mapping(raw, location, allowed=_FIELDS, errors=errors)
        source = text_in(fields, "select", location, errors)
        if not source:
            errors.add(InvalidPolicy(f"{location}.select", "an expression is needed, as $.kind"))
        place = f"{location}.select"
        select = errors.attempt(compile_expression, source or "$", location=place)
        if select is not None:
            errors.attempt(refuse_misreadings, select.tree, place)
        values = errors.attempt(_values, fields, location)
        pattern = text_in(fields, "matchRegex", location, errors)
        regex = errors.attempt(read_regex, pattern, f"{location}.matchRegex")
        wanted = fields.get("matchFor") or _FOR[0]
        if wanted not in _FOR:
            errors.add(InvalidPolicy(f"{location}.matchFor", "Any or All is expected"))
        negate = fields.get("negate") or False
        if not isinstance(negate, bool):
            errors.add(InvalidPolicy(f"{location}.negate", "true or false is expected"))
    return Item(
        location=location,
        select=select or compile_expression("$"),
        values=values,
        regex=regex,
        every=wanted == _FOR[1],
        negate=bool(negate),
    )


def text_in(fields: Mapping[str, Any], name: str, location: str, errors: ErrorList) -> str | None:
    """Read an optional text, and record an error for any other value."""
    value = fields.get(name)
    if value is None:
        return None
    return errors.attempt(_text, value, f"{location}.{name}")


def _text(value: Any, location: str) -> str:
    """Read a text, or a number or boolean of a file, which the API server would refuse."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidPolicy(location, "expected a string: put the value in quotes")


def read_regex(pattern: str | None, location: str) -> Regex | None:
    """Compile an optional regular expression.

    Raises:
        InvalidPolicy: The regular expression is invalid.
    """
    if pattern is None:
        return None
    try:
        return compile_regex(pattern)
    except ValueError as error:
        raise InvalidPolicy(location, str(error)) from None


def _values(fields: Mapping[str, Any], location: str) -> frozenset[str] | None:
    """Return the accepted texts; ``matchValue`` takes precedence over ``matchValues``."""
    with ErrorList() as errors:
        one = text_in(fields, "matchValue", location, errors)
        place = f"{location}.matchValues"
        several = errors.attempt(sequence, fields.get("matchValues"), place) or ()
        texts = errors.attempt(read_each, _text, several, place) or ()
    if one is not None:
        return frozenset({one})
    return frozenset(texts) or None


def refuse_misreadings(tree: Node, location: str) -> None:
    """Refuse expressions that the original accepts, but fails to evaluate for every object.

    These are a subtraction of names, a call of an unknown function, an operator whose literal
    operands have wrong types, and an invalid literal regular expression.

    Raises:
        InvalidPolicy: The tree contains such parts; it holds an error for each.
    """
    with ErrorList() as errors:
        for node in parts_of(tree):
            if reason := _misread(node):
                errors.add(InvalidPolicy(location, reason))
        for fault in faults_of(tree):
            errors.add(InvalidPolicy(location, fault))


def _misread(node: Any) -> str:
    match node:
        case Call(name) if name not in FUNCTIONS:
            return f"there is no function {name}; available: {', '.join(sorted(FUNCTIONS))}"
        case Infix("-", Path(), Variable()):
            return 'a name with "-" in it is read as a subtraction: write ["a-name"] for .a-name'
        case _:
            return ""
