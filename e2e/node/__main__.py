"""``make e2e-node``: starts a cluster with a real node, runs the scenes on it, and removes it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import yaml

from devcluster.binaries import Binaries, cache_root, read_source
from devcluster.lock import locked
from devcluster.obtain import obtain
from e2e.node.images import ROOT, Store
from e2e.node.machine import install_packages, obstacle
from e2e.node.node import left_behind, started
from e2e.node.pages import hooks_image
from e2e.node.running import RigError, Running
from reconciler.errors import RetrofitError

FACTS = "RETROFIT_NODE"
OLDER = ("0.1.0", "d12b38f2358bc8dc4849cfc78bc6ae81b323c922")
"""The version from which the scenes upgrade, and the commit that its image is built from."""
_NODE = {"kubelet", "kube-proxy"}
_OVERLAY = ROOT / "manifests" / "overlays" / "default"


def main() -> int:
    """Run the scenes and return pytest's exit code; print why and return 0 if no node can run."""
    problem = obstacle()
    if problem:
        click.echo(f"e2e-node: skipped: {problem}")
        return 0
    store = cache_root(os.environ).with_name("node")
    running = Running(store)
    try:
        with locked(store / "lock", wait=True):
            code = _scenes(store, running)
    except (RigError, RetrofitError) as error:
        click.echo(f"e2e-node: {error}", err=True)
        code = 1
    running.say("failed" if code else "done")
    return code


def _scenes(store: Path, running: Running) -> int:
    install_packages(running)
    binaries = obtain(os.environ, read_source())
    if not isinstance(binaries, Binaries) or not set(binaries.commands) >= _NODE:
        raise RigError(
            "this control plane came without a kubelet: with RETROFIT_RELEASES=off one is built"
        )
    image, upgrade = _names(running, binaries)
    images = Store(store, running)
    wanted = [
        images.pause(),
        images.tools(),
        images.project(image, upgrade),
        images.hooks(*hooks_image(), Path(__file__).with_name("hooks")),
    ]
    version, commit = OLDER
    older = images.released(f"{image.rpartition(':')[0]}:{version}", commit)
    wanted += [older] if older else []
    folder = Path(tempfile.mkdtemp(prefix="retrofit-node-"))
    with started(folder, binaries, wanted, running) as node:
        facts = {
            "kubeconfig": str(node.kubeconfig),
            "kubectl": list(binaries.command("kubectl")),
            "service_account_key": str(node.service_account_key),
            "image": image,
            "upgrade": upgrade,
            "older": older.names[-1] if older else "",
        }
        (folder / "facts.json").write_text(json.dumps(facts))
        done = subprocess.run(
            [
                *node.inside("--net"),
                *(sys.executable, "-m", "pytest", str(Path(__file__).parent)),
                *(f"--basetemp={folder / 'pytest'}", "-p", "no:cacheprovider", *sys.argv[1:]),
            ],
            env={**os.environ, FACTS: str(folder / "facts.json")},
            cwd=ROOT,
            check=False,
        )
    left = left_behind(folder, store)
    if left:
        raise RigError(f"left behind: {left}")
    return done.returncode


def _names(running: Running, binaries: Binaries) -> tuple[str, str]:
    """Return the image that the manifests name, and the same image with another tag."""
    text = running.ask(*binaries.command("kubectl"), "kustomize", _OVERLAY)
    (name,) = {
        container["image"]
        for document in yaml.safe_load_all(text)
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    return name, f"{name}-upgrade"


if __name__ == "__main__":
    sys.exit(main())
