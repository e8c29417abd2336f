"""Errors named by whose fault they are, so that a caller can tell what to do next.

The author of a policy: `InvalidPolicy`, `EvaluationError`.
The machine, or a rule that asks too much of it: `Interrupted`.
The cluster, at one object: `Conflict`, `NotFound`, `Forbidden`, `Invalid`, `Denied`,
`NoKindMatch`.
The cluster, at this moment: `Throttled`, `Unavailable`, `Unfinished`, `Unauthorized`, `NotReady`,
`ResponseTooLarge`.
This project, at this moment: `NotInstalled`, `Overloaded`.
The person who starts a program: `InvalidSetting`.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from typing_extensions import override

_Args = ParamSpec("_Args")
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


class RetrofitError(Exception):
    """Base of all errors that this project raises on purpose; its text is for people.

    The text may quote the objects that an evaluation read. Where a Secret is among them, only
    `without_values` may leave the process.

    Attributes:
        kind_of_failure: What went wrong, in words that hold for every error of the class.
    """

    kind_of_failure: ClassVar[str] = "it failed"
    _bare: str = ""

    def bare(self, text: str) -> Self:
        """Give the error a second text, without any value of an object; return the error."""
        self._bare = text
        return self

    @property
    def without_values(self) -> str:
        """Say what everybody may read: the second text of this error, or of what caused it."""
        error: BaseException | None = self
        while error is not None:
            if isinstance(error, RetrofitError) and error._bare:  # noqa: SLF001 - its own class
                return error._bare  # noqa: SLF001
            error = error.__cause__
        return self.kind_of_failure


class InvalidPolicy(RetrofitError):
    """A policy, or a part of one, that cannot be compiled.

    Attributes:
        location: Where in the object, as ``spec.rules[0].mutate.targets[1].kind``.
        reason: What is wrong there and what to do about it, one sentence.
        others: What else is wrong with the same object; none of them has others of its own.
    """

    kind_of_failure = "a part with variables became what no policy may hold"

    def __init__(
        self, location: str, reason: str, *, others: "Sequence[InvalidPolicy]" = ()
    ) -> None:
        super().__init__(f"{location}: {reason}" if location else reason)
        self.location = location
        self.reason = reason
        self.others = tuple(others)

    def is_within(self, place: str) -> bool:
        """Return whether it is about a place of the object, or a part of that."""
        return self.location == place or self.location.startswith((f"{place}.", f"{place}["))


class ErrorList:
    """Errors of an object's parts: each part is read, whatever is wrong with those before it.

    At the end of its ``with`` block one `InvalidPolicy` that holds all of them is raised, if there
    are any; one that was raised in the block is among them.
    """

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: list[InvalidPolicy] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, InvalidPolicy):
            self.add(error)
        elif error is not None:
            return
        if self._errors:
            raise self.combined() from error

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, error: InvalidPolicy) -> None:
        """Take in an error, and the others that it holds."""
        self._errors.append(InvalidPolicy(error.location, error.reason))
        self._errors += error.others

    def attempt(
        self, read: Callable[_Args, _Value], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Value | None:
        """Return what a part is read as, None where it is wrong."""
        try:
            return read(*args, **kwargs)
        except InvalidPolicy as error:
            self.add(error)
            return None

    @property
    def errors(self) -> tuple[InvalidPolicy, ...]:
        """All of them; each place and reason once."""
        return tuple({(error.location, error.reason): error for error in self._errors}.values())

    def combined(self) -> InvalidPolicy:
        """Return the first error, with the others."""
        first, *others = self.errors
        return InvalidPolicy(first.location, first.reason, others=others)


def read_each(
    read: Callable[[_Item, str], _Value], items: Sequence[_Item], location: str
) -> tuple[_Value, ...]:
    """Return what the items of a list are read as.

    Args:
        read: Takes an item and its location.
        items: Of the list.
        location: Of the list.

    Raises:
        InvalidPolicy: What `read` raised, for all items that are wrong.
    """
    if not items:
        return ()
    found: list[_Value] = []
    with ErrorList() as errors:
        for index, item in enumerate(items):
            try:
                found.append(read(item, f"{location}[{index}]"))
            except InvalidPolicy as error:
                errors.add(error)
    return tuple(found)


class EvaluationError(RetrofitError):
    """A rule that compiled could not be evaluated on these objects; no write may follow."""

    kind_of_failure = "the rule could not be evaluated"

    @override
    def __reduce__(self) -> tuple[Callable[..., "EvaluationError"], tuple[Any, ...]]:
        """Take both texts along where it is pickled, which leaves its causes behind."""
        return _evaluation_error, (type(self), str(self), self.without_values)


def _evaluation_error(kind: type[EvaluationError], text: str, bare: str) -> EvaluationError:
    return kind(text).bare(bare)


class Interrupted(RetrofitError):
    """An evaluation was ended before its end; another attempt may succeed."""

    kind_of_failure = "evaluating the rule was interrupted"

    @property
    @override
    def without_values(self) -> str:
        """Say it all: the text is about a process."""
        return str(self)


class InvalidSetting(RetrofitError):
    """A flag, environment variable or file of the process cannot be used."""


class ClusterError(RetrofitError):
    """The API server did not do what it was asked.

    Attributes:
        status: The HTTP status, 0 where no answer came.
        retry_after: Seconds that the server asked to wait, or None.
    """

    kind_of_failure = "the API server did not carry out the request"

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Conflict(ClusterError):
    """The object changed since it was read (409); read again and decide again."""

    kind_of_failure = "the object changed meanwhile"


class AlreadyExists(ClusterError):
    """An object of that name is there already (409 on create)."""

    kind_of_failure = "an object of that name exists already"


class NotFound(ClusterError):
    """The object does not exist (404)."""

    kind_of_failure = "an object that is read does not exist"


class NoKindMatch(ClusterError):
    """The cluster does not serve the kind (404 of the resource)."""

    kind_of_failure = "the cluster does not serve the kind"


class Forbidden(ClusterError):
    """The right is missing (403).

    Attributes:
        permission: The verb and resource to grant, as ``patch deployments.apps in namespace a``.
    """

    kind_of_failure = "a right is missing"

    def __init__(self, message: str, *, permission: str, status: int = 403) -> None:
        super().__init__(message, status=status)
        self.permission = permission

    def withhold_permission(self) -> None:
        """Leave out what to grant: it is made of what not everybody may read."""
        self.permission = ""


class Invalid(ClusterError):
    """The API server refuses the content (400, 415, 422): no repetition will help."""

    kind_of_failure = "the content is refused"


class Unreadable(Invalid):
    """An object is stored in a form that nothing here can read."""

    kind_of_failure = "an object cannot be read"


class Denied(ClusterError):
    """An admission webhook or policy of somebody else refused the write."""

    kind_of_failure = "an admission plugin or webhook refuses the write"


class Unauthorized(ClusterError):
    """The token is missing, wrong or expired (401)."""

    kind_of_failure = "the API server does not accept the credentials"


class Throttled(ClusterError):
    """The server asks to slow down (429)."""

    kind_of_failure = "the server asks to slow down"


class Unavailable(ClusterError):
    """No usable answer: connection refused, time-out, 5xx."""

    kind_of_failure = "the server gave no usable answer"


class Unfinished(Unavailable):
    """The call was done, and what it began is not over yet: an object waits for its finalizers."""

    kind_of_failure = "what the call began is not over yet"


class ResponseTooLarge(ClusterError):
    """The answer is larger than the caller takes; ask for less."""

    kind_of_failure = "the answer is too large"


class NotReady(ClusterError):
    """A GlobalContextEntry that a rule reads is missing, or has no data that may be used now."""

    kind_of_failure = "a GlobalContextEntry is not ready"


class NotInstalled(ClusterError):
    """A part of this project is not in the cluster: not yet, or not any more."""

    kind_of_failure = "a part of kube-retrofit is not installed"


class Overloaded(ClusterError):
    """So much of this project's own work waits already that more of it has to come later."""

    kind_of_failure = "too much work waits already"


class Gone(ClusterError):
    """A continue token or a watch position is too old (410); start the list again."""

    kind_of_failure = "a list has to be started again"
