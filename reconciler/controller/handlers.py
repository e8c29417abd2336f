"""kopf handlers, each of which passes an object to the services and returns.

Only ``on.event`` is used: it writes nothing to the objects, no annotation and no finalizer.

Kinds that a cluster need not serve are watched by `cluster_watches`: kopf would exit if their
definition existed and the right to read them did not.
"""

from typing import Any

import kopf

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Object
from reconciler.dialects.registry import required_kinds
from reconciler.requests.adoption import read_hook_request, read_request
from reconciler.services.catchup.passes import CatchUpPasses
from reconciler.wiring.controller import Services
from reconciler.wiring.declared import DeclaredHooks


def build_registry(
    services: Services, passes: CatchUpPasses, hooks: DeclaredHooks
) -> kopf.OperatorRegistry:
    """Return the handlers for the services.

    kopf delivers requests of all namespaces. Those outside of the programs' own are ignored, since
    nothing restricts who may write them.
    """
    index, settings = services.base.index, services.base.settings
    namespace, installation = settings.namespace, settings.installation
    registry = kopf.OperatorRegistry()

    async def on_request(event: kopf.RawEvent, **_: Any) -> None:
        request = read_request(event["object"], adopt=settings.take_over)
        if request is None:
            _take_hook_request(event, hooks, namespace)
            return
        if request.namespace != namespace:
            return
        passes.note(request)
        if event["type"] == "DELETED":
            passes.removed(request)
            services.dispatcher.on_deleted(request.name, request.uid)
            services.collector.on_deleted(request)
            return
        services.dispatcher.on_stored(request)
        services.collector.on_stored(request)

    async def on_policy(event: kopf.RawEvent, **_: Any) -> None:
        policy: Object = dict(event["object"])
        if event["type"] == "DELETED":
            index.on_deleted(policy)
        else:
            await index.take_in(policy)

    of_policies = ((kind, on_policy) for kind in required_kinds(installation))
    for kind, handler in ((kinds_of(installation).requests, on_request), *of_policies):
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(handler)
    return registry


def _take_hook_request(event: kopf.RawEvent, hooks: DeclaredHooks, namespace: str) -> None:
    request = read_hook_request(event["object"])
    if request is None or request.namespace != namespace:
        return
    if event["type"] == "DELETED":
        hooks.hooks.dispatcher.remove(request.name)
        hooks.collector.on_deleted(request)
        return
    hooks.hooks.dispatcher.on_stored(request)
    hooks.collector.on_stored(request)
