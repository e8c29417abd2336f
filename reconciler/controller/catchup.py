"""The search for lost triggers, joined to one cluster, and what people are told of it."""

from reconciler.api.updaterequest import Source
from reconciler.config import ControllerSettings
from reconciler.controller.attempt_log import AttemptLog
from reconciler.kube.client import Client
from reconciler.kube.reader import KubeReader
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.catchup.losses import store_loss
from reconciler.services.catchup.passes import Rounds
from reconciler.services.catchup.recent_requests import Seen
from reconciler.services.catchup.recovery import Loss, describe
from reconciler.services.catchup.scope import Reach
from reconciler.services.catchup.search import PassResult, Search
from reconciler.services.reporting.events import EventRecorder
from reconciler.services.sweeping.listing import ObjectLister
from reconciler.wiring import Services


def rounds_of(
    client: Client,
    settings: ControllerSettings,
    services: Services,
    *,
    holder: SettingsHolder,
    reporter: AttemptLog,
    event_recorder: EventRecorder,
) -> Rounds:
    """Return the passes that a controller with these settings makes."""
    worker = client.speaking_for(settings.background_user)
    cluster, dispatcher, page = services.cluster, services.dispatcher, settings.list_page

    def waiting() -> int:
        return sum(item.spec.source is Source.CATCH_UP for item in dispatcher.unended())

    def found(what: PassResult) -> None:
        for (policy, uid, rule), number in what.recorded.items():
            labels = reporter.metrics.labels.rule(policy.key, rule)
            reporter.metrics.requests_caught_up.labels(*labels).inc(number)
            reporter.log.warning(
                "lost triggers found", policy=policy.key, rule=rule, triggers=number
            )
            event_recorder.caught_up(policy, uid, rule, number)

    async def lost(loss: Loss) -> None:
        await store_loss(cluster.policies, loss)
        for rule in loss.rules:
            labels = reporter.metrics.labels.rule(loss.policy.key, rule.name)
            reporter.metrics.loss_spans.labels(*labels).inc()
            reporter.metrics.triggers_lost.labels(*labels).inc(rule.objects or 0)
            told = describe(loss.outage, rule)
            reporter.log.error("triggers lost", policy=loss.policy.key, rule=rule.name, what=told)
            event_recorder.lost(loss.policy, loss.uid, rule.name, told)

    search = Search(
        existing=ObjectLister(
            kinds=services.kinds, reader=KubeReader(worker, metadata_only=True), page=page
        ),
        reader=cluster.reader,
        requests=cluster.requests,
        processor=dispatcher.processor,
        reach=Reach(live=holder),
        seen=Seen(),
        waiting=waiting,
    )
    return Rounds(
        index=services.index,
        policies=cluster.policies,
        marks=cluster.marks,
        search=search,
        clock=cluster.clock,
        in_force=services.rollout.webhook_writer.in_force,
        interval=settings.catch_up_interval,
        held=lambda: dispatcher.held,
        found=found,
        lost=lost,
        say=reporter.log.warning,
    )
