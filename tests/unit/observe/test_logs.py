"""Log lines as a person or a collector reads them."""

import io
import logging

import orjson
import pytest
import structlog

from reconciler.observe import logs


@pytest.fixture(autouse=True)
def _restore():
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


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
    assert "ValueError: boom" in line["exception"]


def test_console_lines_are_text():
    stream = io.StringIO()
    logs.configure("console", "info", stream=stream)
    logs.logger("x").info("hello", name="a b")
    assert "hello" in stream.getvalue()
    assert "name='a b'" in stream.getvalue()
