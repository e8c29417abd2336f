"""Errors, named by the party at fault, so that a caller can decide what to do next.

The author of a policy: `InvalidPolicy`, `EvaluationError`.
The machine, or a rule that needs too many resources: `Interrupted`.
The cluster, for one object: `Conflict`, `NotFound`, `Forbidden`, `Invalid`, `Denied`,
`NoKindMatch`.
The cluster, as a whole: `Restored`.
The cluster, temporarily: `Throttled`, `Unavailable`, `Unfinished`, `Unauthorized`, `NotReady`,
`ResponseTooLarge`.
This project, temporarily: `NotInstalled`, `Overloaded`.
The user who starts a program: `InvalidSetting`.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from typing_extensions import override

_Args = ParamSpec("_Args")
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


class RetrofitError(Exception):
    """Base of all errors that this project raises deliberately, with a readable text.

    The text may quote the objects that an evaluation read. If a Secret is among them, only
    `without_values` may leave the process.

    Attributes:
        kind_of_failure: Description of the failure that holds for every error of the class.
    """

    kind_of_failure: ClassVar[str] = "it failed"
    _bare: str = ""

    def bare(self, text: str) -> Self:
        """Attach a second text without any value of an object; return the error."""
        self._bare = text
        return self

    @property
    def without_values(self) -> str:
        """Return a text without values: the second text of this error or of a cause."""
        error: BaseException | None = self
        while error is not None:
            if isinstance(error, RetrofitError) and error._bare:  # noqa: SLF001 - its own class
                return error._bare  # noqa: SLF001
            error = error.__cause__
        return self.kind_of_failure


class InvalidPolicy(RetrofitError):
    """A policy, or a part of one, that cannot be compiled.

    Attributes:
        location: Path in the object, as ``spec.rules[0].mutate.targets[1].kind``.
        reason: One sentence on the problem and its remedy.
        others: Further errors of the same object, none of which has others of its own.
    """

    kind_of_failure = "a part with variables resolved to a value that no policy may have"

    def __init__(
        self, location: str, reason: str, *, others: "Sequence[InvalidPolicy]" = ()
    ) -> None:
        super().__init__(f"{location}: {reason}" if location else reason)
        self.location = location
        self.reason = reason
        self.others = tuple(others)

    def is_within(self, place: str) -> bool:
        """Return whether the location is a place of the object, or a part of it."""
        return self.location == place or self.location.startswith((f"{place}.", f"{place}["))


class ErrorList:
    """Collects the errors of an object's parts, so that one error does not hide the others.

    If there are any, the end of its ``with`` block raises one `InvalidPolicy` that holds all of
    them, including one that was raised in the block.
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
        """Add an error and the others that it holds."""
        self._errors.append(InvalidPolicy(error.location, error.reason))
        self._errors += error.others

    def attempt(
        self, read: Callable[_Args, _Value], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Value | None:
        """Return the parsed part, or None after recording its error."""
        try:
            return read(*args, **kwargs)
        except InvalidPolicy as error:
            self.add(error)
            return None

    @property
    def errors(self) -> tuple[InvalidPolicy, ...]:
        """Return all errors, without duplicates of location and reason."""
        return tuple({(error.location, error.reason): error for error in self._errors}.values())

    def combined(self) -> InvalidPolicy:
        """Return the first error, with the others attached."""
        first, *others = self.errors
        return InvalidPolicy(first.location, first.reason, others=others)


def read_each(
    read: Callable[[_Item, str], _Value], items: Sequence[_Item], location: str
) -> tuple[_Value, ...]:
    """Return the parsed items of a list.

    Args:
        read: Parses an item, given its location.

    Raises:
        InvalidPolicy: The errors that `read` raised, for all invalid items.
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
        """Keep both texts when pickled, because pickling drops the causes."""
        return _evaluation_error, (type(self), str(self), self.without_values)


def _evaluation_error(kind: type[EvaluationError], text: str, bare: str) -> EvaluationError:
    return kind(text).bare(bare)


class Interrupted(RetrofitError):
    """An evaluation was stopped before it finished; another attempt may succeed."""

    kind_of_failure = "evaluating the rule was interrupted"

    @property
    @override
    def without_values(self) -> str:
        """Return the whole text, which describes a process and no object."""
        return str(self)


class InvalidSetting(RetrofitError):
    """A flag, environment variable or file of the process cannot be used."""


class Restored(RetrofitError):
    """The cluster holds older data than this process has seen, so the process has to end."""


class ClusterError(RetrofitError):
    """The API server did not carry out a request.

    Attributes:
        status: HTTP status; 0 without an answer.
        retry_after: Seconds that the server asked to wait, or None.
    """

    kind_of_failure = "the API server did not carry out the request"

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Conflict(ClusterError):
    """The object has changed since it was read (409); read it again and decide again."""

    kind_of_failure = "the object changed meanwhile"


class AlreadyExists(ClusterError):
    """An object of that name exists already (409 on create)."""

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
        permission: Verb and resource to grant, as ``patch deployments.apps in namespace a``.
    """

    kind_of_failure = "a right is missing"

    def __init__(self, message: str, *, permission: str, status: int = 403) -> None:
        super().__init__(message, status=status)
        self.permission = permission

    def withhold_permission(self) -> None:
        """Drop the right to grant, because it may contain values that are not public."""
        self.permission = ""


class Invalid(ClusterError):
    """The API server refuses the content (400, 415, 422); a retry does not help."""

    kind_of_failure = "the content is refused"


class Unreadable(Invalid):
    """An object is stored in a form that this project cannot read."""

    kind_of_failure = "an object cannot be read"


class Denied(ClusterError):
    """Another admission webhook or policy refused the write."""

    kind_of_failure = "an admission plugin or webhook refuses the write"


class NamespaceTerminating(Denied):
    """Nothing can be created in the namespace any more, because it is being deleted."""


class Unauthorized(ClusterError):
    """The token is missing, wrong or expired (401)."""

    kind_of_failure = "the API server does not accept the credentials"


class Throttled(ClusterError):
    """The server asks to slow down (429)."""

    kind_of_failure = "the server asks to slow down"


class Unavailable(ClusterError):
    """No usable answer: connection refused, time-out, 5xx."""

    kind_of_failure = "the server gave no usable answer"


class Silent(Unavailable):
    """An open watch on which nothing arrived for a while, not even a bookmark."""

    kind_of_failure = "the server sent nothing for a while"


class Unfinished(Unavailable):
    """The call succeeded but its effect is incomplete: an object waits for its finalizers."""

    kind_of_failure = "the operation is not complete yet"


class ResponseTooLarge(ClusterError):
    """The answer is larger than the caller's limit; request less."""

    kind_of_failure = "the answer is too large"


class NotReady(ClusterError):
    """A GlobalContextEntry that a rule reads is missing, or has no usable data now."""

    kind_of_failure = "a GlobalContextEntry is not ready"


class NotInstalled(ClusterError):
    """A part of this project is not in the cluster: not yet, or not any more."""

    kind_of_failure = "a part of kube-retrofit is not installed"


class Overloaded(ClusterError):
    """So much of this project's work waits that more of it has to come later."""

    kind_of_failure = "too much work waits already"


class Gone(ClusterError):
    """A continue token or a watch position is too old (410); start the list again."""

    kind_of_failure = "a list has to be started again"
