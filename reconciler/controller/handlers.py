"""kopf handlers: each hands an object to the services and returns.

Only ``on.event`` is used: it writes nothing to the objects, no annotation and no finalizer.
"""

from typing import Any, Protocol

import kopf

from reconciler.api.meta import GROUP, Object
from reconciler.controller.observers import Observers
from reconciler.requests.adoption import read_request
from reconciler.services.catalog.policies import policy_key
from reconciler.services.catchup.passes import Rounds
from reconciler.wiring import Services


class _Follower(Protocol):
    """Is told of policies that the index knows."""

    def on_stored(self, policy: Object) -> None:
        """Take in a policy as stored."""
        ...

    def on_deleted(self, key: str) -> None:
        """A policy was deleted."""
        ...


def build_registry(
    services: Services, accounts: Observers, rounds: Rounds, *, namespace: str, adopt: bool
) -> kopf.OperatorRegistry:
    """Return the handlers for the services.

    Args:
        services: Where objects go.
        accounts: Where policies go as well.
        rounds: Where all of it goes as well.
        namespace: Of requests. Those elsewhere come too, and nothing says who may write them.
        adopt: Work on requests of a Kyverno as well.
    """
    registry = kopf.OperatorRegistry()
    followers: tuple[_Follower, ...] = (services.rollout, rounds, accounts)

    async def on_request(event: kopf.RawEvent, **_: Any) -> None:
        request = read_request(event["object"], adopt=adopt)
        if request is None or request.namespace != namespace:
            return
        rounds.take(request)
        if event["type"] == "DELETED":
            rounds.removed(request)
            services.dispatcher.on_deleted(request.name, request.uid)
            services.collector.on_deleted(request)
            return
        services.dispatcher.on_stored(request)
        services.collector.on_stored(request)

    async def on_policy(event: kopf.RawEvent, **_: Any) -> None:
        policy: Object = dict(event["object"])
        key = policy_key(policy)
        known = services.index.version(key)
        if event["type"] == "DELETED":
            services.index.remove(key)
            for follower in followers:
                follower.on_deleted(key)
        else:
            await services.index.take_in(policy)
            for follower in followers:
                follower.on_stored(policy)
        # A status that we wrote ourselves is nothing that a request waits for.
        if services.index.version(key) != known:
            services.dispatcher.wake(key)

    kopf.on.event(GROUP, "v2", "updaterequests", registry=registry)(on_request)
    kopf.on.event(GROUP, "v1", "clusterpolicies", registry=registry)(on_policy)
    kopf.on.event(GROUP, "v1", "policies", registry=registry)(on_policy)
    return registry
