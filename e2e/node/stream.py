"""A stream of triggers while the programs are disturbed, and the counts of their effects."""

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import orjson

from devcluster.waiting import wait_until
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, RetrofitError
from reconciler.kube.client import Client, connect

NAMESPACE = "stream"
MARK = "example.com/seen"
ADMITTED = "example.com/admitted"
MARKS = frozenset({MARK, ADMITTED})
POLICY = f"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: stream}}
spec:
  rules:
    - name: seen
      match:
        any:
          - resources: {{kinds: [ConfigMap], namespaces: [{NAMESPACE}], operations: [CREATE]}}
      mutate:
        targets:
          - apiVersion: v1
            kind: ConfigMap
            namespace: {NAMESPACE}
            name: "{{{{ request.object.metadata.name }}}}"
        patchStrategicMerge:
          metadata: {{annotations: {{{MARK}: "yes"}}}}
    - name: admitted
      match:
        any:
          - resources: {{kinds: [ConfigMap], namespaces: [{NAMESPACE}], operations: [CREATE]}}
      mutate:
        patchStrategicMerge:
          metadata: {{annotations: {{{ADMITTED}: "yes"}}}}
"""
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: e2e:stream
  labels: {rbac.kyverno.io/aggregate-to-background-controller: "true"}
rules:
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [get, list, update, patch]
"""
_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_LIMIT = 40.0
_SETTLED = 90.0
"""Seconds without progress after which triggers without an effect count as lost."""
_LOOK_EVERY = 2.0


@dataclass(kw_only=True)
class Row:
    """The counts of one scene, which are a row of the table."""

    scene: str
    accepted: int = 0
    refused: int = 0
    lost: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


class Stream:
    """A context that creates objects at a steady rate, and counts them at its end.

    By default each object has to be changed twice: before it is stored, and as the target of its
    own request. Other ``marks`` change that.

    Attributes:
        row: The row of the table, complete after the context has ended.
    """

    def __init__(
        self, kubeconfig: Path, scene: str, per_second: float, marks: frozenset[str] = MARKS
    ) -> None:
        self.row = Row(scene=scene)
        self._marks = marks
        self._label = scene.replace(" ", "-").lower()
        self._kubeconfig = kubeconfig
        self._per_second = per_second
        self._accepted: set[str] = set()
        self._stop = threading.Event()
        self._clock = SystemClock()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="stream")

    def __enter__(self) -> Self:
        self._began = self._clock.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.row.accepted = len(self._accepted)
        if kind is None:
            self._settle()
        self.row.seconds = self._clock.monotonic() - self._began

    def wait(self, accepted: int, within: float) -> None:
        """Wait until ``accepted`` more triggers have been accepted."""
        wanted = len(self._accepted) + accepted
        wait_until(lambda: len(self._accepted) >= wanted, within=within, what="triggers pass")

    def _settle(self) -> None:
        """Wait until every accepted trigger has had its effect; count those that had none.

        On a node that is slower than the stream, no trigger is lost as long as there is progress.
        """
        left = self._without_effect()
        while left:
            fewer = partial(self._fewer_than, left)
            try:
                # Each check lists all objects, which is expensive for a busy API server.
                wait_until(fewer, within=_SETTLED, what="work goes on", every=_LOOK_EVERY)
            except RetrofitError:
                break
            left = self._without_effect()
        self.row.lost = left

    def _without_effect(self) -> int:
        return len(self._accepted - asyncio.run(self._seen()))

    def _fewer_than(self, count: int) -> bool:
        return self._without_effect() < count

    async def _run(self) -> None:
        client = await connect(str(self._kubeconfig))
        pending: set[asyncio.Task[None]] = set()
        number = 0
        try:
            while not self._stop.is_set():
                pending.add(asyncio.create_task(self._create(client, number)))
                number += 1
                due = self._began + number / self._per_second
                await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
                pending = {task for task in pending if not task.done()}
            await asyncio.gather(*pending)
        finally:
            await client.close()

    async def _create(self, client: Client, number: int) -> None:
        name = f"{self._label}-{number:05}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"scene": self._label}},
        }
        try:
            await client.request(
                "POST", _PATH, body=orjson.dumps(body), timeout=_LIMIT, repeat=False
            )
        except ClusterError as error:
            self.row.refused += 1
            self.row.reasons[str(error).replace(name, "NAME")[:300]] += 1
        else:
            self._accepted.add(name)

    async def _seen(self) -> set[str]:
        client = await connect(str(self._kubeconfig))
        try:
            answer = await client.json(
                "GET", _PATH, query={"labelSelector": f"scene={self._label}"}
            )
        except ClusterError:
            return set()
        finally:
            await client.close()
        metas = (item["metadata"] for item in answer["items"])
        return {meta["name"] for meta in metas if self._marks <= set(meta.get("annotations", {}))}
