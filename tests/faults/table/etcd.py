"""Helpers that fill etcd up to its quota and free space again as etcd's manual describes."""

import base64
from typing import Any

import aiohttp

from devcluster.cluster import ControlPlane
from devcluster.parts import HOST
from reconciler.errors import ClusterError
from tests.faults.rig import Rig, config_map

_FILLING = "x" * 900_000
_MOST = 400
_LAST = 20


async def fill(rig: Rig) -> int:
    """Create large, then small objects until the store is full, and return their number."""
    made = 0
    for size in (len(_FILLING), len(_FILLING) // _LAST):
        for _ in range(_MOST):
            obj = config_map(rig.namespace, f"filling-{made}", x=_FILLING[:size])
            try:
                await rig.create(obj)
            except ClusterError as error:
                if "space exceeded" not in str(error):
                    raise
                break
            made += 1
        else:
            raise AssertionError(f"{_MOST} objects did not fill the store")
    return made


async def make_room(plane: ControlPlane, rig: Rig, made: int) -> None:
    """Delete the objects of `fill`, compact and defragment the store, and disarm its alarms."""
    for number in range(made):
        await rig.delete("ConfigMap", f"filling-{number}")
    async with aiohttp.ClientSession(f"http://{HOST}:{plane.ports.etcd}") as session:

        async def call(path: str, body: Any) -> Any:
            async with session.post(f"/v3/{path}", json=body) as answer:
                answer.raise_for_status()
                return await answer.json()

        found = await call("kv/range", {"key": base64.b64encode(b"/").decode()})
        revision = found["header"]["revision"]
        await call("kv/compaction", {"revision": revision, "physical": True})
        await call("maintenance/defragment", {})
        alarms = (await call("maintenance/alarm", {"action": "GET"})).get("alarms", ())
        for alarm in alarms:
            await call("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
