"""The CRDs and manifests of an installation beside a Kyverno, generated from the replacing ones.

``python -m devcluster.beside`` writes them; a test fails if they are not up to date. They differ
only in names, which are those of `reconciler.installation`.
"""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Kind
from reconciler.cli.manifests import find_manifests
from reconciler.installation import BESIDE, REPLACING, Installation
from reconciler.services.upkeep.coexistence import LEASES

CRDS: Final = Path("crds/beside")
FOLDERS: Final = {
    Path("manifests/base"): Path("manifests/beside"),
    Path("manifests/hooks"): Path("manifests/hooks-beside"),
    Path("manifests/monitoring/operator"): Path("manifests/monitoring-beside/operator"),
    **{
        Path("manifests", kind, name): Path("manifests", f"{kind}-beside", name)
        for kind, names in {
            "components": ("client-certificate", "metrics-auth", "ui"),
            "dialects": ("kinitiras", "kubemod"),
        }.items()
        for name in names
    },
    **{
        Path("manifests/overlays", name): Path("manifests/overlays", f"{name}-beside")
        for name in (
            *("cert-manager", "conformance", "high-availability", "monitoring"),
            *("single-replica", "tenants"),
        )
    },
}
"""Source and target folders of manifests."""

_PLURALS: Final = (
    r"(?:clusterpolicies|policies|policyexceptions|globalcontextentries|updaterequests)"
)
# Users of a Kyverno may have roles for its reports controller; the new group has no such users.
_LEFT_OUT: Final = re.compile(r"^  name: kyverno[-:]reports-controller$", re.MULTILINE)
_LEFT_OUT_FILES: Final = ("rbac-reports.yaml",)
_HEAD: Final = "# Made from {} by python -m devcluster.beside: change that.\n"

_NAMES: Final = sorted(
    {
        (getattr(REPLACING, name), getattr(BESIDE, name))
        for name in (
            *("group", "namespace", "recorded", "settings", "service", "owner"),
            *("admission_account", "background_account", "controller_account"),
        )
    },
    key=lambda pair: -len(pair[0]),
)

_RULES: Final = (
    # Both may run: neither detects the other, and the other's objects trigger nothing.
    (rf", {', '.join(LEASES)}\]", "]"),
    (r"( +)\[\*/\*,kyverno,\*\]\n", rf"\g<0>\1[*/*,{BESIDE.namespace},*]\n"),
    (rf"(?<=resource\('){_PLURALS}", rf"{BESIDE.plural_prefix}\g<0>"),
    (
        rf"--(?:requests-)?namespace={REPLACING.namespace}",
        rf"--policy-group={BESIDE.group}, \g<0>",
    ),
    # In the DNS names of the serving certificate, the namespace follows the Service's name.
    (
        rf"{re.escape(REPLACING.service)}\.{REPLACING.namespace}\b",
        f"{BESIDE.service}.{BESIDE.namespace}",
    ),
    (r"Is a live Kyverno there, and (\w)", lambda found: found[1].upper()),
    (r" The names are\n# Kyverno's, so that users' roles and bindings go on working\.", ""),
    (r"(?m)(?<=kubectl apply -k )crds$", "crds/beside"),
    (r"\bmanifests/hooks\b", r"\g<0>-beside"),
    (r"\bmanifests/dialects\b|(?<=\.\./)monitoring\b", r"\g<0>-beside"),
    (r"\bmanifests/base\b", "manifests/beside"),
    (r"(?<=\.\./)default\b", "beside-kyverno"),
    # This installation does not detect a Kyverno.
    (r" +- alert: RetrofitBesideKyverno\n(?: {10}.*\n)+", ""),
    # Short names for kubectl.
    (r"(?<=kubectl get )(?:ur|cpol,pol|gctxentry)\b", lambda found: _typed(found[0])),
    # Cluster-wide objects, which an installation that replaces a Kyverno may have as well.
    (r"(?<=priorityClassName: )kube-retrofit-", f"{BESIDE.prefix}-"),
    (r"(?<=kind: PriorityClass\nmetadata:\n  name: )kube-retrofit-", f"{BESIDE.prefix}-"),
    (r"\bkube-retrofit-(?=requests|recorded|resource|policy\b)", f"{BESIDE.prefix}-"),
    (r"\bkube-retrofit:", f"{BESIDE.prefix}:"),
    (r"\bkyverno:", f"{BESIDE.prefix}:"),
    (r"(?<=resourceNames: \[)kube-retrofit\]", f"{BESIDE.prefix}]"),
)


def definition(document: dict[str, Any]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind in the other group, with one version.

    Its schema is that of the version that the programs of a replacing installation use.
    """
    spec = document["spec"]
    names = spec["names"]
    used = next(kind for kind in _kinds(REPLACING) if kind.kind == names["kind"])
    version = next(kind.version for kind in _kinds(BESIDE) if kind.kind == names["kind"])
    kept = next(item for item in spec["versions"] if item["name"] == used.version)
    prefix = BESIDE.plural_prefix
    plural = prefix + names["plural"]
    return {
        **document,
        "metadata": {
            "name": f"{plural}.{BESIDE.group}",
            "labels": _labels(document["metadata"]["labels"]),
        },
        "spec": {
            **spec,
            "group": BESIDE.group,
            "names": {
                **names,
                "plural": plural,
                "singular": prefix + names["singular"],
                "shortNames": [f"r{name}" for name in names["shortNames"]],
                "categories": [BESIDE.settings],
            },
            "versions": [{**kept, "name": version, "served": True, "storage": True}],
        },
    }


def manifest(text: str) -> str:
    """Return the text of a manifest with the other names and unchanged comments."""
    documents = [part for part in text.split("\n---\n") if not _LEFT_OUT.search(part)]
    text = "\n---\n".join(part.rstrip("\n") for part in documents) + "\n"
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    text = "".join(map(_with_plurals, text.splitlines(keepends=True)))
    for before, after in _NAMES:
        text = re.sub(rf"(?<![\w*,-]){re.escape(before)}(?![\w.]|-(?!metrics\b))", after, text)
    return text


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path relative to the root and the text of each file."""
    for path in sorted((root / "crds").glob("*.yaml")):
        text = path.read_text()
        if path.name == "kustomization.yaml":
            changed = re.sub(r"(?<=- )(?=\w+\.yaml)", BESIDE.plural_prefix, text)
            yield CRDS / path.name, changed
            continue
        made = yaml.safe_dump(definition(yaml.safe_load(text)), sort_keys=False, width=130)
        head = _HEAD.format(path.relative_to(root))
        yield CRDS / f"{BESIDE.plural_prefix}{path.name}", head + made
    for source, folder in FOLDERS.items():
        for path in sorted((root / source).glob("*.yaml")):
            if path.name not in _LEFT_OUT_FILES:
                head = _HEAD.format(path.relative_to(root))
                yield folder / path.name, head + _text_of(path)


def _text_of(path: Path) -> str:
    text = manifest(path.read_text())
    for name in _LEFT_OUT_FILES:
        text = text.replace(f"  - {name}\n", "")
    return text


def _kinds(installation: Installation) -> tuple[Kind, ...]:
    known = kinds_of(installation)
    return tuple(getattr(known, item.name) for item in fields(known))


def _labels(labels: dict[str, str]) -> dict[str, str]:
    names = dict(_NAMES)
    return {key: names.get(value, value) for key, value in labels.items()}


def _typed(names: str) -> str:
    return ",".join(f"r{name}" for name in names.split(","))


def _with_plurals(line: str) -> str:
    if "resources: [" not in line:
        return line
    return re.sub(rf"(?<![\w/]){_PLURALS}\b", rf"{BESIDE.plural_prefix}\g<0>", line)


def main() -> None:
    """Write the files into this source tree."""
    root = find_manifests()
    for path, text in generated(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


if __name__ == "__main__":
    main()
