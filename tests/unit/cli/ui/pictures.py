"""Renders the screenshots of the documents: `python -m tests.unit.cli.ui.pictures`."""

import asyncio
import contextlib
import tempfile
from dataclasses import asdict
from pathlib import Path

from aiohttp.test_utils import TestServer

from reconciler.cli.desk.live import Address
from reconciler.cli.ui.server import application
from reconciler.cli.work.place import workplace
from tests.architecture.conftest import ROOT
from tests.unit.cli.ui.browser import find_browser, open_browser
from tests.unit.cli.ui.cluster import Cluster, name, policy, request
from tests.unit.kube.conftest import open_api, write_kubeconfig

IMAGES = ROOT / "docs/images"
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop"}
RIGHT = "update secrets in namespace payments"


def furnish(cluster: Cluster) -> None:
    """Fill the cluster with typical policies and requests."""
    cluster.policies = [
        policy(
            "spread-namespace-labels",
            pending=1,
            triggers=5120,
            patched=5104,
            running={"existing": 5120, "total": 12000, "eta": "3m40s"},
            message="5120 of 12000 existing objects looked at, 3m40s left",
        ),
        policy("restart-on-secret-change", pending=3, triggers=812, missingPermissions=[RIGHT]),
        policy(
            "reload-web",
            triggers=40,
            patched=38,
            failed=1,
            lastError="Deployment shop/worker: spec.template.spec.containers: Required value",
        ),
        policy("quota-by-label", triggers=12, patched=12, message="12 patched after 12 triggers"),
    ]
    targets = [
        {**WEB, "name": "web", "outcome": "Patched", **_versions("48120", "48177")},
        {**WEB, "name": "admin", "outcome": "Unchanged", **_versions("47002", "47002")},
        {
            **WEB,
            "name": "worker",
            "outcome": "Invalid",
            "message": "spec.template.spec.containers: Required value",
            **_versions("47640", ""),
        },
    ]
    cluster.requests[name(2)] = request(
        2,
        "Failed",
        trigger="web-settings",
        reason="TargetInvalid",
        message="1 of 3 targets could not be changed",
        attempts=1,
        targets=targets,
        counts={"matched": 3, "patched": 1, "unchanged": 1, "failed": 1},
    )
    cluster.tell()


def _versions(before: str, after: str) -> dict[str, str]:
    return {"resourceVersionBefore": before, "resourceVersionAfter": after}


async def main() -> None:
    """Render and write the screenshots."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(open_api())
            furnish(Cluster(api))
            file = write_kubeconfig(Path(folder) / "kubeconfig", api.address, {"token": "t"})
            address = asdict(Address(kubeconfig=str(file)))
            place = await stack.enter_async_context(
                workplace(**address, requests_namespace="kyverno")
            )
            server = TestServer(application(place))
            await stack.enter_async_context(server)
            profile = Path(folder) / "profile"
            browser = await stack.enter_async_context(open_browser(find_browser(), profile))
            await browser.go(str(server.make_url("/")))
            await browser.until("document.querySelectorAll('tbody tr').length == 4")
            await browser.photograph(IMAGES / "ui-policies.png", width=1200, height=560)
            await browser.evaluate(f"location.hash = '#/request/{name(2)}'")
            await browser.until("document.title.startsWith('ur-')")
            await browser.photograph(IMAGES / "ui-request.png", width=1200, height=620)


if __name__ == "__main__":
    asyncio.run(main())
