"""Groups of tests that share a worker of pytest-xdist, and the order in which groups start.

Cluster tests wait more than they compute, so workers run them in parallel, each on control planes
of its own. The files of a group share a control plane and therefore a worker. Any other file is a
group of its own, and needs no control plane. Such files only compute: the last of four workers or
more runs nothing else, with a low priority, on the CPU that the tests that wait do not use.
"""

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from devcluster.binaries import locate, read_source
from reconciler.errors import InvalidSetting

_CHAINSAW = "tests/conformance/chainsaw/test_chainsaw.py"
_CHAINSAW_PARTS = 2
_FEWEST_WITH_ONE_ASIDE = 4
ASIDE_NICENESS = 5
# By prefix of the file's path; the longest matching prefix counts. Slow groups start early, as the
# last group to end determines the length of the run. Groups take from 6 to 0.5 minutes.
GROUPS = {
    "live": ("tests/integration/",),
    "live-3": (
        "tests/integration/test_beside.py",
        "tests/integration/test_chart.py",
        "tests/integration/test_gallery.py",
        "tests/integration/test_hook_executables.py",
        "tests/integration/test_hooks.py",
        "tests/integration/test_kinitiras.py",
        "tests/integration/test_modrules.py",
        "tests/integration/test_modrules_on_what_exists.py",
        "tests/integration/test_ui.py",
        "tests/integration/test_upgrade.py",
    ),
    "attacks": ("tests/attacks/",),
    "faults": ("tests/faults/",),
    "live-2": (
        "tests/integration/test_catchup.py",
        "tests/integration/test_global_context.py",
        "tests/integration/test_limits.py",
        "tests/integration/test_pipeline.py",
        "tests/integration/test_webhooks.py",
    ),
    "documents": ("tests/integration/test_docs_commands.py",),
    "faults-4": (
        "tests/faults/test_bound_pods.py",
        "tests/faults/test_deadly_requests.py",
        "tests/faults/test_hooks.py",
        "tests/faults/test_modrule_sweeps.py",
        "tests/faults/test_what_exists.py",
    ),
    "faults-3": (
        "tests/faults/test_ended_by_hand.py",
        "tests/faults/test_out_of_force.py",
    ),
    "chainsaw": (_CHAINSAW,),
    "faults-2": (
        "tests/faults/test_replicas.py",
        "tests/faults/test_retention.py",
        "tests/faults/test_sweeps.py",
    ),
    "table": ("tests/faults/test_table.py",),
    "admission": ("tests/integration/test_admission.py",),
    "shared": (
        "tests/conformance/chainsaw/test_own_cases.py",
        "tests/contract/",
        "tests/integration/test_clean.py",
        "tests/integration/test_control_plane.py",
        "tests/integration/test_crds.py",
        "tests/integration/test_explain.py",
        "tests/integration/test_operator.py",
        "tests/integration/test_preview.py",
        "tests/integration/test_version.py",
    ),
    "overload": ("tests/faults/test_overload.py",),
    "manifests": ("tests/integration/test_manifests.py",),
    "kyverno": ("tests/integration/test_kyverno.py",),
    "large": ("tests/faults/test_large_objects.py",),
    "startup": ("tests/integration/test_startup.py",),
    "silence": ("tests/faults/test_silent_watches.py",),
    "exceptions": ("tests/integration/test_exceptions.py",),
}
_ORDER = {group: place for place, group in enumerate(GROUPS)}


def group_of(nodeid: str) -> str:
    """Return the group of a test."""
    file = nodeid.partition("::")[0]
    fitting = [
        (len(path), group)
        for group, paths in GROUPS.items()
        for path in paths
        if file.startswith(path)
    ]
    group = max(fitting)[1] if fitting else file
    # Its tests need a cluster without other files' tests; in parts, they run on several clusters.
    return f"{group}-{_part(nodeid)}" if file == _CHAINSAW else group


def place_of(nodeid: str) -> int:
    """Return the position of a test's group in the order in which groups start."""
    group = group_of(nodeid)
    return _ORDER.get("chainsaw" if group.startswith("chainsaw-") else group, len(_ORDER))


def is_aside(worker: str, workers: int) -> bool:
    """Return whether a worker, by its id, runs only tests that need no control plane."""
    return workers >= _FEWEST_WITH_ONE_ASIDE and worker == f"gw{workers - 1}"


def next_group(queue: Iterable[str], *, aside: bool) -> str | None:
    """Return the group of the queue that a worker starts next, or None if none is left for it."""
    # The name of a group without a control plane is the path of its file.
    return next((group for group in queue if not aside or "/" in group), None)


def _part(nodeid: str) -> int:
    return zlib.crc32(nodeid.encode()) % _CHAINSAW_PARTS


class Distribution(LoadScopeScheduling):
    """Gives each worker whole groups, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Otherwise the group with the most tests starts first, however short they are.
        config.option.loadscopereorder = False
        self._one_cluster = _names_a_cluster()

    @override
    def _split_scope(self, nodeid: str) -> str:
        group = group_of(nodeid)
        # A cluster that the user names has one installation, and therefore one worker.
        return "cluster" if self._one_cluster and place_of(nodeid) < len(_ORDER) else group

    @override
    def _assign_work_unit(self, node: WorkerController) -> None:
        aside = is_aside(node.gateway.id, self.numnodes)
        group = next_group(self.workqueue, aside=aside)
        if group is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)


def _names_a_cluster() -> bool:
    try:
        return isinstance(locate(os.environ, read_source()), Path)
    except InvalidSetting:
        return False
