"""HTTP endpoints of hooks that the API server calls."""

from collections.abc import Sequence
from typing import Final

from reconciler.hooks.responses import AdmissionAnswer
from reconciler.observe.logs import logger
from reconciler.services.hooks import conversions
from reconciler.services.hooks.answering import (
    FAILED,
    AdmissionAnswers,
    AskedBinding,
    ConversionAnswers,
    ConversionFailed,
    Converter,
    Verdict,
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

    def respond_for(binding: AskedBinding) -> Respond:
        async def respond(body: bytes) -> bytes:
            review = decode_admission(body)
            uid = str(review["request"]["uid"])
            try:
                verdict = await answers.review(binding, review)
            except Exception:  # noqa: BLE001  (the API server must get an answer)
                _log.exception("admission request failed", uid=uid)
                message = f"{_BUG} has the details under uid {uid}"
                answer = AdmissionAnswer(allowed=False, message=message)
                verdict = Verdict(answer=answer, code=FAILED)
            return _render(uid, verdict, binding)

        return respond

    return {path_of(binding): respond_for(binding) for binding in asked}


def conversion_posts(
    answers: ConversionAnswers, converters: Sequence[Converter]
) -> dict[str, Respond]:
    """Return the handlers for ConversionReviews by path, one for each definition."""

    def respond_for(chosen: Sequence[Converter]) -> Respond:
        async def respond(body: bytes) -> bytes:
            review = decode_conversion(body)
            uid = str(review["request"]["uid"])
            try:
                answer = converted(uid, await answers.convert(chosen, review))
            except ConversionFailed as error:
                _log.warning("objects not converted", reason=str(error))
                answer = unconverted(uid, str(error))
            except Exception:  # noqa: BLE001  (the API server must get an answer)
                _log.exception("conversion failed", uid=uid)
                answer = unconverted(uid, f"{_BUG} has the details under uid {uid}")
            return answer

        return respond

    by_path: dict[str, list[Converter]] = {}
    for item in converters:
        by_path.setdefault(conversions.path_of(item.binding.crd), []).append(item)
    return {path: respond_for(chosen) for path, chosen in by_path.items()}


def unknown(request: Request) -> Response:
    """Return the error for a request that no hook is bound to."""
    return error_response(404, f"no hook answers {request.method} {request.path}")


def _render(uid: str, verdict: Verdict, binding: AskedBinding) -> bytes:
    answer = verdict.answer
    if not answer.allowed:
        return deny(uid, answer.message, code=verdict.code, warnings=answer.warnings)
    patch = answer.patch if binding.mutating else ()
    return allow(uid, warnings=answer.warnings, patch=patch)
