"""Resources of a group of tests are opened once, and closed when another group begins."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.sharing import Shared


class Log:
    """Resources that log when they are opened and closed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def cluster(self, name: str) -> Iterator[str]:
        self.lines.append(f"open {name}")
        yield name
        self.lines.append(f"close {name}")

    @contextmanager
    def programs(self, cluster: str) -> Iterator[str]:
        self.lines.append(f"start in {cluster}")
        yield f"programs in {cluster}"
        self.lines.append(f"stop in {cluster}")


def test_a_group_opens_each_resource_once() -> None:
    log = Log()
    with Shared() as shared:
        shared.begin("a")
        assert shared.get(log.cluster, "one") == "one"
        shared.begin("a")
        assert shared.get(log.cluster, "two") == "one"
        assert shared.get(log.programs, "one") == "programs in one"
        assert log.lines == ["open one", "start in one"]
    assert log.lines[2:] == ["stop in one", "close one"]


def test_another_group_begins_without_open_resources() -> None:
    log = Log()
    with Shared() as shared:
        shared.begin("a")
        shared.get(log.cluster, "one")
        shared.begin("b")
        assert log.lines == ["open one", "close one"]
        assert shared.get(log.cluster, "two") == "two"
    assert log.lines[2:] == ["open two", "close two"]
