"""The format of log lines, as console text and as JSON."""

import io
import logging
import uuid

import orjson
import pytest

from reconciler.errors import EvaluationError
from reconciler.observe import logs

pytestmark = pytest.mark.usefixtures("kept_logs")


def test_json_lines_carry_time_level_part_and_fields():
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    logs.logger("admission.server").info("request recorded", request="ur-1", rules=2)
    line = orjson.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "message": "request recorded",
        "level": "info",
        "logger": "admission.server",
        "request": "ur-1",
        "rules": 2,
    }


def test_libraries_write_the_same_lines():
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    logging.getLogger("kopf").warning("watch %s ended", "x")
    line = orjson.loads(stream.getvalue())
    assert (line["message"], line["level"], line["logger"]) == ("watch x ended", "warning", "kopf")


def test_less_serious_lines_are_not_written():
    stream = io.StringIO()
    logs.configure("json", "warning", stream=stream)
    logs.logger("x").info("hello")
    logging.getLogger("y").info("hello")
    assert stream.getvalue() == ""


def test_an_exception_is_one_line_of_json():
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    try:
        raise ValueError("boom")  # noqa: TRY301
    except ValueError:
        logs.logger("x").exception("failed")
    line = orjson.loads(stream.getvalue())
    assert "ValueError: its text is left out" in line["exception"]
    assert "test_logs.py" in line["exception"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_exception_texts_that_may_quote_an_object_are_not_written(log_format):
    secret = uuid.uuid4().hex
    stream = io.StringIO()
    logs.configure(log_format, "info", stream=stream)
    try:
        try:
            _read({secret: secret})
        except ExceptionGroup as error:
            raise EvaluationError(f"the value {secret} is none").bare("no value") from error
    except EvaluationError:
        logs.logger("x").exception("failed")
    assert secret not in stream.getvalue()
    assert "EvaluationError: no value" in stream.getvalue()
    assert "KeyError" in stream.getvalue()


def _read(obj):
    try:
        obj[obj.popitem()[0]]
    except KeyError as error:
        group = ExceptionGroup(f"of {error}", [error])
    raise group


def test_console_lines_are_text():
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    logs.logger("x").info("hello", name="a b")
    assert "hello" in stream.getvalue()
    assert "name='a b'" in stream.getvalue()
