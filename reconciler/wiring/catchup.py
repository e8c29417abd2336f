"""Catch-up passes, wired to one cluster."""

from collections import Counter

from reconciler.api.meta import PolicyRef
from reconciler.api.updaterequest import Source
from reconciler.kube.reader import KubeReader
from reconciler.observe.observers import Observers
from reconciler.services.catchup.losses import store_loss
from reconciler.services.catchup.passes import CatchUpPasses
from reconciler.services.catchup.recent_requests import RecentRequests
from reconciler.services.catchup.recovery import Loss
from reconciler.services.catchup.scope import CatchUpScope
from reconciler.services.catchup.search import Search
from reconciler.services.sweeping.listing import ObjectLister
from reconciler.wiring.controller import Services


def catch_up_passes(services: Services, observers: Observers) -> CatchUpPasses:
    """Return the catch-up passes of a controller."""
    base = services.base
    worker = base.client.speaking_for(base.settings.background_user)
    cluster, dispatcher, page = base.cluster, services.dispatcher, base.settings.list_page

    def waiting() -> Counter[PolicyRef]:
        specs = (item.spec for item in base.known.unended())
        return Counter(spec.policy for spec in specs if spec.source is Source.CATCH_UP)

    async def lost(loss: Loss) -> None:
        await store_loss(cluster.policies, loss)
        observers.lost(loss)

    search = Search(
        lister=ObjectLister(
            kinds=cluster.kinds, reader=KubeReader(worker, metadata_only=True), page=page
        ),
        processor=dispatcher.processor,
        scope=CatchUpScope(live=base.live),
        recent=RecentRequests(),
        waiting=waiting,
    )
    return CatchUpPasses(
        index=base.index,
        policies=cluster.policies,
        checkpoint=cluster.checkpoint,
        search=search,
        clock=cluster.clock,
        in_force=services.rollout.webhook_writer.in_force,
        interval=base.settings.catch_up_interval,
        held=lambda: dispatcher.held,
        on_found=observers.caught_up,
        lost=lost,
        warn=base.warn,
    )
