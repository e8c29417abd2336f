"""Errors named by whose fault they are, so that a caller can tell what to do next.

The author of a policy: `InvalidPolicy`, `EvaluationError`.
The cluster, at one object: `Conflict`, `Gone`, `Forbidden`, `Invalid`, `Denied`, `UnknownKind`.
The cluster, at this moment: `Throttled`, `Unavailable`, `Unauthorized`, `NotReady`,
`TooMuch`.
The person who starts a program: `InvalidSetting`.
"""


class RetrofitError(Exception):
    """Base of all errors that this project raises on purpose; its text is for people."""


class InvalidPolicy(RetrofitError):
    """A policy, or a part of one, that cannot be compiled.

    Attributes:
        location: Where in the object, as ``spec.rules[0].mutate.targets[1].kind``.
        reason: What is wrong there and what to do about it, one sentence.
    """

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"{location}: {reason}" if location else reason)
        self.location = location
        self.reason = reason


class EvaluationError(RetrofitError):
    """A rule that compiled could not be evaluated on these objects; no write may follow."""


class InvalidSetting(RetrofitError):
    """A flag, environment variable or file of the process cannot be used."""


class ClusterError(RetrofitError):
    """The API server did not do what it was asked.

    Attributes:
        status: The HTTP status, 0 where no answer came.
        retry_after: Seconds that the server asked to wait, or None.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Conflict(ClusterError):
    """The object changed since it was read (409); read again and decide again."""


class AlreadyExists(ClusterError):
    """An object of that name is there already (409 on create)."""


class Gone(ClusterError):
    """The object does not exist (404)."""


class UnknownKind(ClusterError):
    """The cluster does not serve the kind (404 of the resource)."""


class Forbidden(ClusterError):
    """The right is missing (403).

    Attributes:
        permission: The verb and resource to grant, as ``patch deployments.apps in namespace a``.
    """

    def __init__(self, message: str, *, permission: str, status: int = 403) -> None:
        super().__init__(message, status=status)
        self.permission = permission


class Invalid(ClusterError):
    """The API server refuses the content (400, 415, 422): no repetition will help."""


class Denied(ClusterError):
    """An admission webhook or policy of somebody else refused the write."""


class Unauthorized(ClusterError):
    """The token is missing, wrong or expired (401)."""


class Throttled(ClusterError):
    """The server asks to slow down (429)."""


class Unavailable(ClusterError):
    """No usable answer: connection refused, time-out, 5xx."""


class TooMuch(ClusterError):
    """The answer is larger than the caller takes; ask for less."""


class NotReady(ClusterError):
    """A GlobalContextEntry that a rule reads is missing, or has no data that may be used now."""


class Expired(ClusterError):
    """A continue token or a watch position is too old (410); start the list again."""
