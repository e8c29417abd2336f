"""Answers of hooks to AdmissionReviews and ConversionReviews of the API server.

Nothing is recorded, because another webhook may still refuse the reviewed object. A run has to end
within the timeout of its binding, which includes the wait for a free process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from reconciler.api.meta import Object
from reconciler.clock import Clock, Deadline
from reconciler.engine.program import IGNORE
from reconciler.errors import Interrupted, InvalidPolicy
from reconciler.hooks import contexts
from reconciler.hooks.bindings import AdmissionBinding, ConversionBinding, HookConfig
from reconciler.hooks.contexts import Context, SnapshotOf
from reconciler.hooks.conversion import (
    ConversionStep,
    check_converted,
    shortest_chain,
    versions_of,
)
from reconciler.hooks.ports import Answers, HookRef, Reply, RunFailure
from reconciler.hooks.responses import (
    AdmissionAnswer,
    ResponseFiles,
    parse_admission,
    parse_conversion,
)
from reconciler.services.catalog.protection import standing_namespaces

_Said = TypeVar("_Said")

FORBIDDEN: Final = 403
FAILED: Final = 500
_MARGIN: Final = 0.5
"""Seconds of a timeout that are reserved for the network round trip."""
_CONVERSION: Final = 30
"""Seconds that the API server waits for a conversion; it has no setting for this."""
_LOG: Final = "see the log of retrofit-hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredHook:
    """A hook that the API server calls.

    Attributes:
        name: The name of its executable, for messages.
    """

    ref: HookRef
    name: str
    config: HookConfig

    @property
    def asked(self) -> tuple["AskedBinding", ...]:
        """Return the admission bindings of the hook."""
        both = (False, self.config.validating), (True, self.config.mutating)
        return tuple(
            AskedBinding(hook=self, binding=binding, mutating=mutating)
            for mutating, bindings in both
            for binding in bindings
        )

    @property
    def converters(self) -> tuple["Converter", ...]:
        """Return the conversion bindings of the hook."""
        return tuple(Converter(hook=self, binding=item) for item in self.config.conversions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBinding:
    """An admission binding, and the hook that has it."""

    hook: AnsweredHook
    binding: AdmissionBinding
    mutating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to an admission request.

    Attributes:
        code: The HTTP status that the client receives if the request is refused.
    """

    answer: AdmissionAnswer
    code: int = FORBIDDEN


class Snapshots(Protocol):
    """Current snapshots of the bindings of hooks."""

    def of(self, hook: HookRef) -> SnapshotOf:
        """Return a function that returns the snapshot of a binding of the hook by name."""

    def problem(self, hook: HookRef, bindings: Sequence[str]) -> str:
        """Return why snapshots of these bindings are incomplete; empty if they are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCalls:
    """Runs hooks concurrently, up to a limit."""

    answers: Answers
    snapshots: Snapshots
    turns: asyncio.Semaphore
    clock: Clock

    async def ask(
        self,
        hook: AnsweredHook,
        context: Context,
        deadline: Deadline,
        read: Callable[[ResponseFiles], _Said],
    ) -> Reply[_Said]:
        """Return the reply of a hook to a review, or why it gave none."""
        if problem := self.snapshots.problem(hook.ref, context.snapshots):
            return Reply(failure=RunFailure(reason=f"a snapshot is not complete: {problem}"))
        try:
            async with asyncio.timeout(deadline.left):
                await self.turns.acquire()
        except TimeoutError:
            reason = f"no process was free for {deadline.seconds:g} s: raise --hook-parallel"
            return Reply(failure=RunFailure(reason=reason))
        try:
            given = contexts.render([context], self.snapshots.of(hook.ref))
            return await self.answers.ask(
                hook.ref, hook.config, given, read, seconds=deadline.left
            )
        except Interrupted as error:
            return Reply(failure=RunFailure(reason=str(error)))
        finally:
            self.turns.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAnswers:
    """Has hooks decide whether requests are allowed, and how their objects are changed.

    Attributes:
        namespace: The program's own. Requests in it and in `kube-system` are allowed unseen.
    """

    calls: HookCalls
    namespace: str

    async def review(self, asked: AskedBinding, review: Mapping[str, Any]) -> Verdict:
        """Return the answer to an AdmissionReview, which has a request."""
        place = _place(review["request"])
        if place and place in standing_namespaces(self.namespace):
            return Verdict(answer=AdmissionAnswer(allowed=True))
        binding = asked.binding
        deadline = Deadline(self.calls.clock, _limit(binding.timeout))
        context = contexts.of_review(binding, review, mutating=asked.mutating)
        reply = await self.calls.ask(
            asked.hook, context, deadline, lambda files: parse_admission(files.admission)
        )
        if reply.answer is not None:
            return Verdict(answer=reply.answer)
        return _failed(asked, reply)


def _failed(asked: AskedBinding, reply: Reply[AdmissionAnswer]) -> Verdict:
    """Return the verdict where a hook gave no answer: its failure policy if the run failed.

    A hook that ended successfully without a readable answer has refused.
    """
    text = _said(asked.hook, reply)
    if not reply.ran and asked.binding.failure_policy == IGNORE:
        return Verdict(answer=AdmissionAnswer(allowed=True, warnings=(f"not reviewed: {text}",)))
    code = FORBIDDEN if reply.ran else FAILED
    return Verdict(answer=AdmissionAnswer(allowed=False, message=text), code=code)


class ConversionFailed(Exception):
    """Objects cannot be converted; the client that requested them receives the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """A conversion binding, and the hook that has it."""

    hook: AnsweredHook
    binding: ConversionBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionAnswers:
    """Has hooks convert objects in the fewest steps."""

    calls: HookCalls

    async def convert(
        self, converters: Sequence[Converter], review: Mapping[str, Any]
    ) -> list[Object]:
        """Return the objects of a ConversionReview in the requested version.

        Args:
            converters: Those of the objects' CustomResourceDefinition.
            review: As received, with a request.

        Raises:
            ConversionFailed: The objects cannot be converted.
        """
        request = review["request"]
        wanted, objects = str(request["desiredAPIVersion"]), list(request["objects"])
        deadline = Deadline(self.calls.clock, _limit(_CONVERSION))
        conversion = _Conversion(self.calls, converters, review, wanted, deadline)
        for version in versions_of(objects):
            if version == wanted:
                continue
            places = [at for at, obj in enumerate(objects) if obj["apiVersion"] == version]
            found = await conversion.run(version, tuple(objects[at] for at in places))
            for at, obj in zip(places, found, strict=True):
                objects[at] = obj
        return objects


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The conversion of the objects of one review."""

    calls: HookCalls
    converters: Sequence[Converter]
    review: Mapping[str, Any]
    goal: str
    deadline: Deadline

    async def run(self, start: str, objects: tuple[Object, ...]) -> tuple[Object, ...]:
        """Return objects of one version in the requested one."""
        for step in self._steps(start):
            if versions_of(objects) == (self.goal,):
                break
            objects = await self._step(step, objects)
        if versions_of(objects) != (self.goal,):
            raise ConversionFailed(f"conversion to {self.goal} ended at {versions_of(objects)[0]}")
        return objects

    async def _step(
        self, step: ConversionStep[Converter], objects: tuple[Object, ...]
    ) -> tuple[Object, ...]:
        hook = step.owner.hook
        request = {**self.review["request"], "objects": list(objects)}
        context = contexts.of_conversion(
            step.owner.binding, (step.start, step.goal), {**self.review, "request": request}
        )
        reply = await self.calls.ask(
            hook, context, self.deadline, lambda files: parse_conversion(files.conversion)
        )
        try:
            if reply.answer is None:
                raise ConversionFailed(_said(hook, reply))
            if reply.answer.failed:
                raise ConversionFailed(reply.answer.failed)
            return check_converted(objects, reply.answer.objects, (step.goal, self.goal))
        except InvalidPolicy as error:
            raise ConversionFailed(f"hook {hook.name}: {error}") from error

    def _steps(self, start: str) -> tuple[ConversionStep[Converter], ...]:
        known = [
            ConversionStep(old, new, owner)
            for owner in self.converters
            for old, new in owner.binding.conversions
        ]
        found = shortest_chain(known, start, self.goal)
        if not found:
            pairs = ", ".join(f"{step.start} to {step.goal}" for step in known) or "none"
            raise ConversionFailed(f"no hook converts {start} to {self.goal}; available: {pairs}")
        return found


def _said(hook: AnsweredHook, reply: Reply[Any]) -> str:
    reason = "" if reply.failure is None else reply.failure.brief
    if reply.ran:
        return f"hook {hook.name} gave no valid answer: {reason}"
    return f"hook {hook.name} failed ({reason}); {_LOG}"


def _limit(seconds: int) -> float:
    return max(seconds - _MARGIN, seconds / 2)


def _place(request: Mapping[str, Any]) -> str:
    """Return the namespace of a request's object; that of a Namespace is the Namespace itself."""
    kind = request.get("kind")
    named = kind if isinstance(kind, Mapping) else {}
    is_namespace = not named.get("group") and named.get("kind") == "Namespace"
    return str(request.get("name" if is_namespace else "namespace") or "")
