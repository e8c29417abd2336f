"""Answers of hooks to the API server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from reconciler.clock import Clock
from reconciler.hooks.ports import Answers
from reconciler.isolation.jq import JqWorkers
from reconciler.kube.client import Client
from reconciler.kube.discovery import KubeKinds
from reconciler.kube.hooks import KubeWatching
from reconciler.kube.reader import KubeReader
from reconciler.services.hooks.answering import (
    AdmissionAnswers,
    AnsweredHook,
    AskedBinding,
    ConversionAnswers,
    Converter,
    HookCalls,
)
from reconciler.services.hooks.following import InformerDeps, SnapshotBudget
from reconciler.services.hooks.snapshots import HookSnapshots
from reconciler.services.ports.reporting import Events

MOST_SNAPSHOTS: Final = 64 * 1024 * 1024
"""Limit of all snapshots of a program, in bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringHooks:
    """Hooks whose answer the API server waits for, in every replica."""

    snapshots: HookSnapshots
    admission: AdmissionAnswers
    conversion: ConversionAnswers
    asked: tuple[AskedBinding, ...]
    converters: tuple[Converter, ...]

    @classmethod
    def of(
        cls,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        hooks: Sequence[AnsweredHook],
        answers: Answers,
        parallel: int,
        jq: JqWorkers,
        events: Events,
    ) -> Self:
        """Return the answering hooks of a program.

        Args:
            hooks: Hooks with bindings that the API server calls.
            parallel: Limit of concurrent processes.
        """
        informer = InformerDeps(
            kinds=KubeKinds(client, clock),
            reader=KubeReader(client),
            watching=KubeWatching(client),
            jq=jq,
            clock=clock,
            budget=SnapshotBudget(most=MOST_SNAPSHOTS),
            events=events,
        )
        snapshots = HookSnapshots.following(informer, {hook.ref: hook.config for hook in hooks})
        turns = asyncio.Semaphore(parallel)
        calls = HookCalls(answers=answers, snapshots=snapshots, turns=turns, clock=clock)
        return cls(
            snapshots=snapshots,
            admission=AdmissionAnswers(calls=calls, namespace=namespace),
            conversion=ConversionAnswers(calls=calls),
            asked=tuple(item for hook in hooks for item in hook.asked),
            converters=tuple(item for hook in hooks for item in hook.converters),
        )
