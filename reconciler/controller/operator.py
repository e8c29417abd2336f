"""kopf's operator: how it logs in, what it follows, and how it ends.

kopf would ask for the user's name, keep a token until it is refused, be ready before it has read
anything, and wait for ever when its login fails. So it gets an identity, a session that carries
our credentials of the moment, and a process that ends with it.
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
    """Which of the kinds are watched, by what the API server answered last.

    Attributes:
        problems: Of each resource, as ``policies.kyverno.io``, why it is not; empty where it is.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.problems = {kind.resource: _STARTING for kind in kinds}

    def answered(self, call: Call, problem: str) -> None:
        """Take in how a request ended; only an open watch is good news."""
        if call.resource in self.problems and (problem or call.verb == "watch"):
            self.problems[call.resource] = problem

    def refused(self, problem: str) -> None:
        """Nothing can be watched with these credentials."""
        self.problems = dict.fromkeys(self.problems, problem)

    def problem(self) -> str | None:
        """Return why one of the kinds is not watched, None when all are."""
        return next(
            (f"{kind}: {problem}" for kind, problem in self.problems.items() if problem), None
        )


class Operator:
    """Follows kinds by kopf until it is cancelled."""

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
        """Prepare it.

        Args:
            client: Whose address and credentials it uses.
            kinds: What the handlers need; without a watch of each it is not ready.
            page: Objects per page of the first list.
            identity: A name that no other process has.
            stop: Ends it when set.
            registry: Of the handlers.
            patience: Seconds for which refused credentials may be replaced by better ones.
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
            ClusterError: kopf cannot go on; the text says why.
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
            # The API server did not refuse anything.
            _log.error("kopf ended because of a bug in kopf or kube-retrofit", exc_info=error)
            problem = None
        said = problem or (f"{type(error).__name__}: {error}" if error else "kopf ended")
        return ClusterError(f"policies and requests are no longer watched: {said}")

    async def _login(self, *, runtime: timedelta, **_: object) -> kopf.AiohttpSession:
        """Open a session; asked again after a refusal, wait a while for better credentials."""
        if self._asked:
            try:
                await self._client.request("GET", "/readyz", timeout=_TIMEOUT)
            except Unauthorized as error:
                self.watches.refused(str(error))
                if runtime.total_seconds() < self._patience:
                    raise kopf.TemporaryError(str(error), delay=_PAUSE) from error
                self._refused.set_exception(error)
                # kopf would go on without a login: whoever runs it ends it.
                await asyncio.Event().wait()
            except ClusterError as error:
                # Any other answer says nothing against the credentials.
                _log.debug("checked whether the credentials are accepted", answer=str(error))
        self._asked = True
        return kopf.AiohttpSession(
            server=self._client.address,
            aiohttp_session=self._client.open_session(self.watches.answered),
        )
