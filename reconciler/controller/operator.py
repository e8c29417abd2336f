"""kopf's operator: its login, the kinds that it watches, and its end.

By default kopf would look up the name of its user, keep a token until it is refused, be ready
before it has read anything, and wait forever when its login fails. So it gets an identity, a
session that carries the current credentials, and a process that ends with it.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import kopf

from reconciler.api.meta import Kind
from reconciler.controller.settings import operator_settings
from reconciler.errors import ClusterError, Unauthorized
from reconciler.kube.client import Client
from reconciler.kube.paths import Call
from reconciler.observe.logs import logger

_TIMEOUT = 10.0
_PAUSE = 2.0
_STARTING = "it is not watched yet"
_log = logger("controller.operator")


class Watches:
    """Records which kinds are watched, from the latest answers of the API server.

    Attributes:
        problems: Per resource, as ``policies.kyverno.io``, why it is not watched, or "".
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.problems = {kind.resource: _STARTING for kind in kinds}

    def answered(self, call: Call, problem: str) -> None:
        """Record the result of a request; only an open watch clears a problem."""
        if call.resource in self.problems and (problem or call.verb == "watch"):
            self.problems[call.resource] = problem

    def refused(self, problem: str) -> None:
        """Record that no kind can be watched with the current credentials."""
        self.problems = dict.fromkeys(self.problems, problem)

    def problem(self) -> str | None:
        """Return why one of the kinds is not watched, or None if all are."""
        return next(
            (f"{kind}: {problem}" for kind, problem in self.problems.items() if problem), None
        )


class Operator:
    """Watches kinds with kopf until it is cancelled."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Kind],
        *,
        page: int,
        identity: str,
        stop: asyncio.Event,
        registry: kopf.OperatorRegistry,
        patience: float = 60.0,
    ) -> None:
        """Take what the operator needs.

        Args:
            kinds: Kinds of the handlers; readiness requires a watch of each.
            patience: Seconds to wait for new credentials after a refusal.
        """
        self.watches = Watches(kinds)
        self.started = asyncio.Event()
        self._client = client
        self._page = page
        self._identity: Any = identity  # kopf's type for it is not public
        self._stop = stop
        self._registry = registry
        self._patience = patience
        self._asked = False
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Run until stopped.

        Raises:
            ClusterError: kopf has ended; the text says why.
        """
        kopf.on.login(registry=self._registry, errors=kopf.ErrorsMode.PERMANENT)(self._login)
        running = asyncio.create_task(
            kopf.operator(
                registry=self._registry,
                settings=operator_settings(self._page),
                identity=self._identity,
                standalone=True,
                clusterwide=True,
                ready_flag=self.started,
                stop_flag=self._stop,
            ),
            name="kopf",
        )
        try:
            await asyncio.wait({running, self._refused}, return_when=asyncio.FIRST_COMPLETED)
            if self._refused.done():
                self._refused.result()
            running.result()
        except Unauthorized:
            raise
        except Exception as error:
            raise self._ended(error) from error
        finally:
            running.cancel()
            self._refused.cancel()
            await asyncio.gather(running, self._refused, return_exceptions=True)
        if self.started.is_set() and not self._stop.is_set():
            raise self._ended(None)

    def _ended(self, error: Exception | None) -> ClusterError:
        problem = self.watches.problem()
        if problem is None or problem.endswith(_STARTING):
            # The API server refused nothing, so this is a bug.
            _log.error("kopf ended because of a bug in kopf or kube-retrofit", exc_info=error)
            problem = None
        said = problem or (f"{type(error).__name__}: {error}" if error else "kopf ended")
        return ClusterError(f"policies and requests are no longer watched: {said}")

    async def _login(self, *, runtime: timedelta, **_: object) -> kopf.AiohttpSession:
        """Open a session; after a refusal, kopf calls this again: wait for new credentials."""
        if self._asked:
            try:
                await self._client.request("GET", "/readyz", timeout=_TIMEOUT)
            except Unauthorized as error:
                self.watches.refused(str(error))
                if runtime.total_seconds() < self._patience:
                    raise kopf.TemporaryError(str(error), delay=_PAUSE) from error
                self._refused.set_exception(error)
                # kopf would continue without a login; wait until `run` ends it.
                await asyncio.Event().wait()
            except ClusterError as error:
                # Any other failure does not concern the credentials.
                _log.debug("checked whether the credentials are accepted", answer=str(error))
        self._asked = True
        return kopf.AiohttpSession(
            server=self._client.address,
            aiohttp_session=self._client.open_session(self.watches.answered),
        )
