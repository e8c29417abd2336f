"""Parsers of a hook's answers to AdmissionReviews and ConversionReviews.

A file holds one JSON value. As in the original, text after it and unknown fields are ignored, and
names of fields are case-insensitive.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import orjson

from reconciler.engine.reading import kind_of
from reconciler.errors import InvalidPolicy
from reconciler.hooks.values import json_values

_Value = TypeVar("_Value")

_ADMISSION: Final = "$VALIDATING_RESPONSE_PATH"
_CONVERSION: Final = "$CONVERSION_RESPONSE_PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAnswer:
    """The answer of a hook to an admission request.

    Attributes:
        message: Why the request is refused, for its client.
        patch: Operations of a JSON patch; only from mutating hooks.
    """

    allowed: bool
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionAnswer:
    """The answer of a hook to a conversion request.

    Attributes:
        failed: Why it did not convert; empty if it did.
    """

    objects: tuple[Any, ...] = ()
    failed: str = ""


class ResponseFiles(Protocol):
    """The text files that a run wrote for the API server."""

    @property
    def admission(self) -> str:
        """Return the answer to an AdmissionReview."""

    @property
    def conversion(self) -> str:
        """Return the answer to a ConversionReview."""


def parse_admission(text: str) -> AdmissionAnswer:
    """Parse the answer to an AdmissionReview.

    Raises:
        InvalidPolicy: It is not a valid answer.
    """
    fields = _fields(text, _ADMISSION)
    allowed, message = fields.read("allowed", bool, "true or false"), fields.text("message")
    if allowed is None and not message:
        message = f"the hook did not set allowed in {_ADMISSION}"
    return AdmissionAnswer(
        allowed=bool(allowed),
        message=message,
        warnings=fields.texts("warnings"),
        patch=_patch(fields.text("patch")),
    )


def parse_conversion(text: str) -> ConversionAnswer:
    """Parse the answer to a ConversionReview.

    Raises:
        InvalidPolicy: It is not a valid answer.
    """
    fields = _fields(text, _CONVERSION)
    return ConversionAnswer(
        objects=tuple(fields.items("convertedObjects")), failed=fields.text("failedMessage")
    )


class _Fields:
    """The fields of an answer; a null field counts as missing."""

    def __init__(self, raw: Mapping[str, Any], place: str) -> None:
        self._raw = {name.lower(): value for name, value in raw.items() if value is not None}
        self._place = place

    def read(self, name: str, kind: type[_Value], wanted: str) -> _Value | None:
        value = self._raw.get(name.lower())
        if value is not None and not isinstance(value, kind):
            place = f"{self._place}: {name}"
            raise InvalidPolicy(place, f"expected {wanted}, got {kind_of(value)}")
        return value

    def text(self, name: str) -> str:
        return self.read(name, str, "a string") or ""

    def items(self, name: str) -> list[Any]:
        return self.read(name, list, "a list") or []

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.items(name)
        for index, item in enumerate(found):
            if not isinstance(item, str):
                place = f"{self._place}: {name}[{index}]"
                raise InvalidPolicy(place, f"expected a string, got {kind_of(item)}")
        return tuple(found)


def _fields(text: str, place: str) -> _Fields:
    if not text.strip():
        raise InvalidPolicy(place, "is empty: write the answer to this file as JSON")
    try:
        value = next(json_values(text))
        # Refuse values that no answer can hold: lone surrogates, integers beyond 64 bits.
        orjson.dumps(value)
    except RecursionError as error:
        raise InvalidPolicy(place, "is nested too deeply") from error
    except (ValueError, TypeError) as error:
        raise InvalidPolicy(place, f"is not JSON: {error}") from error
    if value is not None and not isinstance(value, Mapping):
        raise InvalidPolicy(place, f"expected an object, got {kind_of(value)}")
    return _Fields(value or {}, place)


def _patch(text: str) -> tuple[Mapping[str, Any], ...]:
    if not text:
        return ()
    place = f"{_ADMISSION}: patch"
    try:
        patch = orjson.loads(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError) as error:
        reason = "must be a JSON patch encoded in base64, as by base64 -w0"
        raise InvalidPolicy(place, f"{reason}: {error}") from error
    if not isinstance(patch, list) or not all(isinstance(item, Mapping) for item in patch):
        raise InvalidPolicy(place, "must be a list of operations, as RFC 6902 defines them")
    return tuple(patch)
