"""kopf handlers: each hands an object to the services and returns.

Only ``on.event`` is used: it writes nothing to the objects, no annotation and no finalizer.
"""

from typing import Any

import kopf

from reconciler.api.meta import GROUP, Object
from reconciler.api.updaterequest import parse_request
from reconciler.services.policies import policy_key
from reconciler.wiring import Services


def build_registry(services: Services, login: Any) -> kopf.OperatorRegistry:
    """Return the handlers for the services; ``login`` gives kopf its credentials."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)

    async def on_request(event: kopf.RawEvent, **_: Any) -> None:
        request = parse_request(event["object"])
        if event["type"] == "DELETED":
            services.dispatcher.forget(request.name)
            services.collector.forget(request)
            return
        services.dispatcher.notice(request)
        services.collector.notice(request)

    async def on_policy(event: kopf.RawEvent, **_: Any) -> None:
        policy: Object = dict(event["object"])
        if event["type"] == "DELETED":
            services.index.remove(policy_key(policy))
            services.rollout.forget(policy_key(policy))
        else:
            services.index.apply(policy)
            services.rollout.notice(policy)
        services.dispatcher.wake(policy_key(policy))

    kopf.on.event(GROUP, "v2", "updaterequests", registry=registry)(on_request)
    kopf.on.event(GROUP, "v1", "clusterpolicies", registry=registry)(on_policy)
    kopf.on.event(GROUP, "v1", "policies", registry=registry)(on_policy)
    return registry
