"""Helm is taken from an earlier build, else from PATH, else built once."""

from pathlib import Path

import pytest

from devcluster.helm import locate_helm, obtain_helm, read_helm_source
from reconciler.errors import Unavailable
from tests.unit.devcluster.test_build import fake_go

BUILD = 'echo helm > "$2"'


def test_helm_is_built_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    environ = fake_go(tmp_path, BUILD)
    assert locate_helm(environ) is None
    built = obtain_helm(environ)
    assert built.read_text() == "helm\n"
    key = read_helm_source().key
    assert built == tmp_path / "cache/kube-retrofit/helm" / key / "helm"
    assert sorted(item.name for item in built.parents[1].iterdir()) == ["lock", key]
    (tmp_path / "bin/go").unlink()
    assert obtain_helm(environ) == built


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    environ = fake_go(tmp_path, "echo no space left on device; exit 1")
    with pytest.raises(Unavailable, match="free about 5 GB"):
        obtain_helm(environ)
    assert [item.name for item in (tmp_path / "cache/kube-retrofit/helm").iterdir()] == ["lock"]


def test_helm_on_the_path_is_used_without_a_build(tmp_path: Path) -> None:
    environ = fake_go(tmp_path, BUILD)
    helm = tmp_path / "bin/helm"
    helm.write_text("#!/bin/sh\n")
    helm.chmod(0o755)
    assert obtain_helm(environ) == helm
    assert [item.name for item in tmp_path.iterdir()] == ["bin"]
