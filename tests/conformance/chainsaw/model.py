"""A chainsaw test as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; the defaults are chainsaw's own."""

    apply: float = 5.0
    assert_: float = 30.0
    error: float = 30.0
    delete: float = 15.0
    cleanup: float = 30.0
    exec: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a group of tests shares.

    Attributes:
        delay_before_cleanup: Seconds between the last step and the clean-up.
        grace: `terminationGracePeriodSeconds` of everything that makes pods.
        fast_delete: The test's namespace may go on terminating when the test is over.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    delay_before_cleanup: float = 0.0
    grace: int = 1
    fast_delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do.

    Attributes:
        action: Its name, such as ``apply``.
        arguments: What stands below that name, without the timeout.
        timeout: Seconds; None takes the default of its kind.
        place: For messages, such as ``step-01 try[0] apply cm.yaml``.
    """

    action: str
    arguments: Mapping[str, Any]
    timeout: float | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Operations that run one after another.

    Attributes:
        bindings: Names and values (maybe expressions) that hold in this step.
        catch: Runs when `do` failed.
        finally_: Runs after `do` in any case.
        cleanup: Runs when the test is over.
    """

    name: str
    bindings: tuple[tuple[str, Any], ...] = ()
    do: tuple[Operation, ...] = ()
    catch: tuple[Operation, ...] = ()
    finally_: tuple[Operation, ...] = ()
    cleanup: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One test.

    Attributes:
        folder: Where its files lie and its commands run.
        namespace: Empty asks for one of its own.
        template: Whether values in parentheses are expressions in what is written.
        document: The test itself, bound to ``$test``.
    """

    __test__ = False

    folder: Path
    configuration: Configuration
    steps: tuple[Step, ...]
    namespace: str = ""
    template: bool = True
    document: Mapping[str, Any] = field(default_factory=dict)
