"""Wiring that the controller and the admission server share."""

import asyncio
from collections.abc import Callable
from typing import Final

from reconciler.clock import Clock
from reconciler.config import ProcessSettings
from reconciler.errors import Unavailable
from reconciler.kube.client import Client
from reconciler.kube.leases import KubeLeases
from reconciler.kube.watch import Watch
from reconciler.services.catalog.exceptions import ExceptionSettings
from reconciler.services.catalog.settings import SettingsHolder
from reconciler.services.upkeep.coexistence import LEASES, KyvernoDetector

Warn = Callable[[str], None]

_PATIENCE: Final = 10.0
"""Seconds that an attempt waits for current exceptions."""


async def caught_up(of_exceptions: Watch) -> None:
    """Return when the cached exceptions are the stored ones."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await of_exceptions.caught_up()
    except TimeoutError:
        reason = of_exceptions.problem or "the API server does not answer"
        raise Unavailable(f"the PolicyExceptions cannot be read: {reason}") from None


def exception_settings(settings: ProcessSettings) -> ExceptionSettings:
    """Return the settings of exceptions for a program."""
    return ExceptionSettings(
        enabled=settings.enable_policy_exception, namespaces=settings.exception_namespace
    )


def success_events(settings: ProcessSettings, live: SettingsHolder) -> Callable[[str], bool]:
    """Return a predicate that reports whether a success event is wanted for an action.

    A value in the ConfigMap takes precedence over the flag.
    """

    def wanted(action: str) -> bool:
        said, chosen = live.current.success_events, live.current.success_actions
        if not (settings.generate_success_events if said is None else said):
            return False
        return not chosen or action in chosen

    return wanted


def kyverno_detector(
    client: Client, settings: ProcessSettings, clock: Clock, warn: Warn
) -> KyvernoDetector:
    """Return the detector of a live Kyverno."""
    return KyvernoDetector(
        leases=KubeLeases(client, settings.namespace),
        names=LEASES if settings.installation.stands_by else (),
        clock=clock,
        namespace=settings.namespace,
        take_over=settings.take_over,
        warn=warn,
    )
