"""Structured logs of both servers, one JSON object or one coloured line per event."""

import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from reconciler.errors import RetrofitError

Logger = structlog.stdlib.BoundLogger

# Allowed extras of library log records; kopf attaches all of its settings.
_EXTRAS = ("k8s_ref",)


def configure(
    log_format: str,
    level: str,
    *,
    stream: TextIO | None = None,
    colours: bool = False,
    timed: bool = True,
) -> None:
    """Send the logs of this process and of its libraries to one stream.

    Args:
        log_format: ``json`` or ``console``.
        level: Lowest level to write, for example ``info``.
        stream: Destination; standard error by default.
        timed: Whether lines have a timestamp.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        *([structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")] if timed else []),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow=_EXTRAS)],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format, colours=colours),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # The access log repeats what the API server's audit log contains.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger(name: str) -> Logger:
    """Return the logger of a part of the program, for example ``admission.server``."""
    return structlog.stdlib.get_logger(name)


def _renderers(log_format: str, *, colours: bool) -> list[Processor]:
    if log_format == "console":
        return [
            structlog.dev.ConsoleRenderer(
                colors=colours,
                # Other formatters print local variables, which may hold objects and tokens.
                exception_formatter=_print_traceback,
            )
        ]
    return [
        structlog.processors.ExceptionRenderer(_traceback),
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(serializer=_dumps),
    ]


def _traceback(exc_info: ExcInfo) -> str:
    return "".join(_lines(exc_info[1]))


def _print_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    stream.write(_traceback(exc_info))


def _lines(error: BaseException) -> Iterator[str]:
    """Yield the traceback of an exception, with its text only if it cannot quote an object."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _lines(cause)
        yield "\nwhich caused:\n\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__qualname__}: {_said(error)}\n"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _lines(inner)


def _said(error: BaseException) -> str:
    if isinstance(error, RetrofitError):
        return error.without_values
    if isinstance(error, OSError):
        return str(error)
    return "its text is left out because it may quote an object"


def _dumps(event: EventDict, **_: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
