"""A user who works with kube-retrofit only through kubectl."""

import json
from collections.abc import Callable
from string import Template
from typing import Any

from devcluster.cluster import Cluster
from devcluster.waiting import wait_until

WITHIN = 30.0
_REQUESTS = ("-n", "kyverno")


class Person:
    """A user with a namespace: ``$ns`` in texts, and the prefix of cluster-wide names."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._applied: list[str] = []

    def kubectl(self, *args: str) -> str:
        return self.cluster.kubectl(*args)

    def apply(self, text: str) -> str:
        text = Template(text).substitute(ns=self.namespace)
        said = self.cluster.kubectl("apply", "-f", "-", stdin=text)
        self._applied.append(text)
        return said

    def forget(self, text: str) -> None:
        """Delete the objects of an applied text."""
        self._applied.remove(text)
        self.cluster.kubectl("delete", "-f", "-", stdin=text)

    def apply_policy(self, text: str) -> str:
        """Apply a policy, wait until it is Ready, and return its name."""
        name = self.apply(text).split()[0].partition("/")[2]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=30s", f"clusterpolicy/{name}")
        return name

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-n", self.namespace, "-o", "json"))

    def requests(self, policy: str) -> list[dict[str, Any]]:
        label = f"kube-retrofit.dev/policy={policy}"
        text = self.kubectl("get", "ur", *_REQUESTS, "-l", label, "-o", "json")
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found

    def request(
        self, policy: str, fits: Callable[[dict[str, Any]], bool] | None = None
    ) -> dict[str, Any]:
        """Return a policy's only request once its status fits, by default once it is Completed."""
        fits = fits or (lambda status: status.get("state") == "Completed")

        def found() -> dict[str, Any] | None:
            requests = self.requests(policy)
            return next((each for each in requests if fits(each.get("status") or {})), None)

        request = wait_until(found, within=WITHIN, what=f"a request of {policy} is as wanted")
        assert len(self.requests(policy)) == 1
        return request

    def row(self, request: dict[str, Any], *options: str) -> dict[str, str]:
        """Return the row that ``kubectl get ur`` prints for a request, by column."""
        name = request["metadata"]["name"]
        heads, values = self.kubectl("get", "ur", name, *_REQUESTS, *options).splitlines()
        # A column starts where its heading starts; a heading contains only single spaces.
        starts = [
            i for i, c in enumerate(heads) if c != " " and heads[max(0, i - 2) : i] in ("", "  ")
        ]
        ends = [*starts[1:], None]
        return {
            heads[start:end].strip(): values[start:end].strip()
            for start, end in zip(starts, ends, strict=True)
        }

    def leave(self) -> None:
        for text in reversed(self._applied):
            self.cluster.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text
            )
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")
