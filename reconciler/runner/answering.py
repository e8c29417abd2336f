"""HTTP endpoints of hooks that the API server calls."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from reconciler.observe.logs import logger
from reconciler.services.hooks import conversions
from reconciler.services.hooks.answering import (
    FAILED,
    AdmissionAnswers,
    AskedBinding,
    ConversionAnswers,
    ConversionFailed,
    Converter,
)
from reconciler.services.hooks.webhook_config import path_of
from reconciler.serving.http import Respond
from reconciler.serving.messages import Request, Response, error_response
from reconciler.serving.review import (
    allow,
    converted,
    decode_admission,
    decode_conversion,
    deny,
    unconverted,
)

_BUG: Final = "kube-retrofit failed on this request because of a bug; the log of retrofit-hooks"

_log = logger("hooks.answering")


def admission_posts(
    answers: AdmissionAnswers, asked: Sequence[AskedBinding]
) -> dict[str, Respond]:
    """Return the handlers for AdmissionReviews by path, one for each binding."""
    return {path_of(binding): partial(_review, answers, binding) for binding in asked}


async def _review(answers: AdmissionAnswers, binding: AskedBinding, body: bytes) -> bytes:
    review = decode_admission(body)
    uid = str(review["request"]["uid"])
    try:
        verdict = await answers.review(binding, review)
    except Exception:  # noqa: BLE001  (the API server must get an answer)
        _log.exception("admission request failed", uid=uid)
        return deny(uid, f"{_BUG} has the details under uid {uid}", code=FAILED)
    answer = verdict.answer
    if not answer.allowed:
        return deny(uid, answer.message, code=verdict.code, warnings=answer.warnings)
    patch = answer.patch if binding.mutating else ()
    return allow(uid, warnings=answer.warnings, patch=patch)


def conversion_posts(
    answers: ConversionAnswers, converters: Sequence[Converter]
) -> dict[str, Respond]:
    """Return the handlers for ConversionReviews by path, one for each definition."""
    by_path: dict[str, list[Converter]] = {}
    for item in converters:
        by_path.setdefault(conversions.path_of(item.binding.crd), []).append(item)
    return {path: partial(_convert, answers, chosen) for path, chosen in by_path.items()}


async def _convert(
    answers: ConversionAnswers, converters: Sequence[Converter], body: bytes
) -> bytes:
    review = decode_conversion(body)
    uid = str(review["request"]["uid"])
    try:
        return converted(uid, await answers.convert(converters, review))
    except ConversionFailed as error:
        _log.warning("objects not converted", reason=str(error))
        return unconverted(uid, str(error))
    except Exception:  # noqa: BLE001  (the API server must get an answer)
        _log.exception("conversion failed", uid=uid)
        return unconverted(uid, f"{_BUG} has the details under uid {uid}")


def unknown(request: Request) -> Response:
    """Return the error for a request that no hook is bound to."""
    return error_response(404, f"no hook answers {request.method} {request.path}")
