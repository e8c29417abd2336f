"""A validating webhook of another product, beside those of kube-retrofit."""

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from reconciler.api.meta import Object
from reconciler.clock import SystemClock
from reconciler.serving.pki import make_ca, make_serving
from tests.faults.rig import Rig
from tests.https import HOST, serve_https


class Sibling:
    """A webhook server that reviews the ConfigMaps of one namespace.

    It denies objects with the label ``deny`` and allows all others: those with ``slow`` after a
    second, those with ``hold`` only after `release`.

    Attributes:
        held: The names of the objects whose reviews are, or were, held back.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self._released = asyncio.Event()

    def release(self) -> None:
        """Answer all reviews that are held back."""
        self._released.set()

    async def answer(self, http: web.Request) -> web.Response:
        """Answer one AdmissionReview."""
        review = await http.json()
        request = review["request"]
        labels = request["object"]["metadata"].get("labels") or {}
        response: dict[str, Any] = {"uid": request["uid"], "allowed": "deny" not in labels}
        if not response["allowed"]:
            response["status"] = {"message": "the sibling does not like it"}
        if "slow" in labels:
            await asyncio.sleep(1.0)
        if "hold" in labels:
            self.held.append(request["name"])
            await self._released.wait()
        return web.json_response({**review, "response": response})


@contextlib.asynccontextmanager
async def open_sibling(rig: Rig) -> AsyncIterator[Sibling]:
    """Yield a webhook that the API server calls for the ConfigMaps of the rig's namespace."""
    sibling, name = Sibling(), f"sibling-of-{rig.namespace}"
    ca = make_ca(SystemClock().now())
    app = web.Application()
    app.router.add_post("/", sibling.answer)
    async with serve_https(app, make_serving(ca, [HOST], SystemClock().now())) as address:
        await rig.create(_configuration(name, f"{address}/", ca.bundle, rig.namespace))
        try:
            await _in_force(rig)
            yield sibling
        finally:
            sibling.release()
            await rig.delete("ValidatingWebhookConfiguration", name, "")


def labelled(obj: Object, label: str) -> Object:
    """Return a copy of an object with the label that selects the sibling's answer."""
    return {**obj, "metadata": {**obj["metadata"], "labels": {label: "yes"}}}


async def _in_force(rig: Rig) -> None:
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": rig.namespace},
    }

    async def missing() -> str:
        if await rig.refused(labelled(probe, "deny")):
            return ""
        await rig.delete("ConfigMap", "probe")
        return "the sibling is not asked yet"

    await rig.settle(missing, within=15.0)


def _configuration(name: str, address: str, bundle: bytes, namespace: str) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "sibling.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 30,
                "clientConfig": {"url": address, "caBundle": b64encode(bundle).decode()},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["configmaps"],
                        "operations": ["CREATE", "UPDATE"],
                    }
                ],
            }
        ],
    }
