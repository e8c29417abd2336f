"""The data model of a chainsaw test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds, with chainsaw's defaults."""

    apply: float = 5.0
    assert_: float = 30.0
    error: float = 30.0
    delete: float = 15.0
    cleanup: float = 30.0
    exec: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration that a group of tests shares.

    Attributes:
        delay_before_cleanup: Seconds between the last step and the clean-up.
        grace: `terminationGracePeriodSeconds` of pods and of objects that create pods.
        fast_delete: Whether the namespace may still be terminating when the test is over.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    delay_before_cleanup: float = 0.0
    grace: int = 1
    fast_delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a step.

    Attributes:
        action: The name of the operation, such as ``apply``.
        arguments: The fields below that name, without the timeout.
        timeout: Seconds. None stands for the default of the action.
        place: The position for messages, such as ``step-01 try[0] apply cm.yaml``.
    """

    action: str
    arguments: Mapping[str, Any]
    timeout: float | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Operations that run one after another.

    Attributes:
        bindings: Names and values (maybe expressions) that are defined in this step.
        catch: Runs if `do` failed.
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
    """A chainsaw test.

    Attributes:
        folder: The folder of its files, in which its commands run.
        namespace: The namespace. If empty, the runner creates one for the test.
        template: Whether values in parentheses are expressions in the documents to write.
        document: The document of the test, bound to ``$test``.
    """

    __test__ = False

    folder: Path
    configuration: Configuration
    steps: tuple[Step, ...]
    namespace: str = ""
    template: bool = True
    document: Mapping[str, Any] = field(default_factory=dict)
