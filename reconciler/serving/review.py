"""AdmissionReview v1 and ConversionReview v1, which the API server exchanges with webhooks."""

import contextlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from reconciler.api.depth import brackets, cut
from reconciler.api.meta import Object
from reconciler.api.shape import json_type, mistyped, object_fault, texts_fault, type_fault
from reconciler.errors import RetrofitError
from reconciler.requests.draft import MOST_LEVELS, AdmissionRequest, TypeName

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
CONVERSION_VERSION = "apiextensions.k8s.io/v1"
CONVERSION = "ConversionReview"

_MOST_BRACKETS: Final = 50_000
"""The API server stores ten thousand levels; scanning so many brackets takes some 30 ms."""
_PAYLOADS = frozenset({"object", "oldObject", "userInfo", "options", "operation"})
_TEXTS: Final = ("uid", "operation", "subResource", "name", "namespace")
_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class BadReview(RetrofitError):
    """The body is no AdmissionReview that can be answered; the text describes it."""


def parse_review(body: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview.

    Raises:
        BadReview: The body is not JSON, not an AdmissionReview v1, or incomplete.
    """
    review, shallow = _review(body, KIND, API_VERSION)
    return _parse_request(review["request"], shallow=shallow)


def decode_admission(body: bytes) -> dict[str, Any]:
    """Return a whole AdmissionReview whose request has a uid.

    Raises:
        BadReview: The body is none, or has more levels than can be passed on.
    """
    return _whole(body, KIND, API_VERSION)


def decode_conversion(body: bytes) -> dict[str, Any]:
    """Return a whole ConversionReview whose request has a uid and objects with versions.

    Raises:
        BadReview: The body is none, or has more levels than can be passed on.
    """
    review = _whole(body, CONVERSION, CONVERSION_VERSION)
    request = review["request"]
    if not _text(request, "desiredAPIVersion", "request"):
        raise BadReview("request.desiredAPIVersion is missing")
    objects = request.get("objects")
    if not isinstance(objects, list):
        raise BadReview(mistyped(objects, list, "request.objects"))
    for index, obj in enumerate(objects):
        place = f"request.objects[{index}]"
        if not isinstance(obj, Mapping):
            raise BadReview(mistyped(obj, Mapping, place))
        if not _text(obj, "apiVersion", place):
            raise BadReview(f"{place}.apiVersion is missing")
    return review


def _whole(body: bytes, kind: str, api_version: str) -> dict[str, Any]:
    review, shallow = _review(body, kind, api_version)
    if shallow:
        raise BadReview(f"an object is nested more deeply than {MOST_LEVELS} levels")
    if not _text(review["request"], "uid", "request"):
        raise BadReview("request.uid is missing")
    return review


def _review(body: bytes, kind: str, api_version: str) -> tuple[dict[str, Any], bool]:
    """Return a review with a request, and whether parts nested too deeply were cut out."""
    review, shallow = _decode(body)
    if not isinstance(review, dict):
        raise BadReview(f"the body is a JSON {json_type(review)}, expected an {kind} object")
    named, version = review.get("kind"), review.get("apiVersion")
    if named != kind or version != api_version:
        raise BadReview(f"expected {api_version} {kind}, got {version} {named}")
    if not isinstance(review.get("request"), dict):
        raise BadReview(f"the {kind} has no request")
    return review, shallow


def _decode(body: bytes) -> tuple[Any, bool]:
    """Return a decoded body, and whether parts nested too deeply were cut out."""
    most = brackets(body)
    try:
        if most <= MOST_LEVELS:
            return orjson.loads(body), False
        with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
            review = orjson.loads(body)
            # The parser accepts more levels than the serializer.
            orjson.dumps(review)
            return review, False
        if most > _MOST_BRACKETS:
            raise BadReview(
                f"the body is not JSON, or nested more deeply than {MOST_LEVELS} levels, and too"
                " large to be looked through"
            )
        shallow = cut(body, MOST_LEVELS)
        return orjson.loads(shallow or body), shallow is not None
    except orjson.JSONDecodeError as error:
        raise BadReview(f"the body is not JSON: {error}") from error


def allow(
    uid: str, *, warnings: Sequence[str] = (), patch: Sequence[Mapping[str, Any]] = ()
) -> bytes:
    """Return the answer that allows a request, with a JSON patch (RFC 6902) if given."""
    answer: dict[str, Any] = {"allowed": True}
    if patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = b64encode(orjson.dumps(list(patch))).decode()
    return _render(uid, answer, warnings)


def deny(uid: str, message: str, *, code: int, warnings: Sequence[str] = ()) -> bytes:
    """Return the answer that denies a request; kubectl shows the message to the user.

    Args:
        message: Problem and remedy.
        code: HTTP status of the user's request.
        warnings: Warnings shown to the user in addition.
    """
    status = {"code": code, "message": message}
    return _render(uid, {"allowed": False, "status": status}, warnings)


def _render(uid: str, answer: Mapping[str, Any], warnings: Sequence[str]) -> bytes:
    response = {"uid": uid, **answer}
    if warnings:
        response["warnings"] = list(warnings)
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def converted(uid: str, objects: Sequence[Object]) -> bytes:
    """Return the answer to a ConversionReview, with its objects in the same order."""
    return _conversion(uid, {"convertedObjects": list(objects), "result": {"status": "Success"}})


def unconverted(uid: str, message: str) -> bytes:
    """Return the answer that fails a conversion; the API server's client gets the message."""
    return _conversion(uid, {"result": {"status": "Failure", "message": message}})


def _conversion(uid: str, answer: Mapping[str, Any]) -> bytes:
    review = {"apiVersion": CONVERSION_VERSION, "kind": CONVERSION}
    return orjson.dumps({**review, "response": {"uid": uid, **answer}})


def _parse_request(raw: Mapping[str, Any], *, shallow: bool) -> AdmissionRequest:
    if fault := texts_fault(raw, _TEXTS, "request"):
        raise BadReview(fault)
    uid, operation = raw.get("uid"), raw.get("operation") or ""
    if not uid:
        raise BadReview("request.uid is missing")
    if operation not in _OPERATIONS:
        raise BadReview(f"request.operation is {operation!r}, expected CREATE, UPDATE, DELETE ...")
    obj, old = _object(raw, "object"), _object(raw, "oldObject")
    meta = (obj or old or {}).get("metadata") or {}
    kind = _type_name(raw, "kind", "kind")
    # The API server omits the name if it is generated, and sends the name of a Namespace as its
    # namespace too.
    is_namespace = kind.name == "Namespace" and not kind.group
    return AdmissionRequest(
        uid=uid,
        operation=operation,
        kind=kind,
        resource=_type_name(raw, "resource", "resource"),
        subresource=raw.get("subResource") or "",
        name=raw.get("name") or meta.get("name") or "",
        namespace="" if is_namespace else raw.get("namespace") or "",
        user=_user(raw),
        object=obj,
        old_object=old,
        dry_run=raw.get("dryRun") is True,
        info={key: value for key, value in raw.items() if key not in _PAYLOADS},
        manager=str(_mapping(raw, "options", "request").get("fieldManager") or ""),
        cut=shallow,
    )


def _type_name(raw: Mapping[str, Any], field: str, name: str) -> TypeName:
    found, place = _mapping(raw, field, "request"), f"request.{field}"
    if not found.get(name):
        raise BadReview(f"{place}.{name} is missing")
    if fault := texts_fault(found, ("group", "version", name), place):
        raise BadReview(fault)
    return TypeName(
        group=found.get("group") or "", version=found.get("version") or "", name=found[name]
    )


def _object(raw: Mapping[str, Any], field: str) -> Object | None:
    obj = _mapping(raw, field, "request")
    # The API server sends no other objects; matching and recording rely on it.
    if fault := object_fault(obj, f"request.{field}"):
        raise BadReview(fault)
    return obj or None


def _user(raw: Mapping[str, Any]) -> Object:
    user, place = _mapping(raw, "userInfo", "request"), "request.userInfo"
    groups = user.get("groups")
    if fault := (
        texts_fault(user, ("username", "uid"), place)
        or type_fault(groups, list, f"{place}.groups")
    ):
        raise BadReview(fault)
    for at, group in enumerate(groups or ()):
        if not isinstance(group, str):
            raise BadReview(mistyped(group, str, f"{place}.groups[{at}]"))
    return user


def _text(raw: Mapping[str, Any], field: str, place: str) -> str:
    if fault := texts_fault(raw, (field,), place):
        raise BadReview(fault)
    return raw.get(field) or ""


def _mapping(raw: Mapping[str, Any], field: str, place: str) -> Object:
    found = raw.get(field)
    if fault := type_fault(found, Mapping, f"{place}.{field}"):
        raise BadReview(fault)
    return found or {}
