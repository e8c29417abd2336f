"""Which files of a folder are hooks, and their order."""

from pathlib import Path

import pytest

from reconciler.errors import InvalidSetting
from reconciler.execution.discovery import find_executables


def put(path: Path, *, executable: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755 if executable else 0o644)


def test_executables_are_sorted_by_path(tmp_path: Path) -> None:
    for name in ("b.sh", "a/z.py", "a.sh", "a/b/c", "B.sh"):
        put(tmp_path / name)
    found = find_executables(tmp_path)
    assert [item.name for item in found.executables] == [
        "B.sh",
        "a.sh",
        "a/b/c",
        "a/z.py",
        "b.sh",
    ]


def test_hidden_files_libraries_and_documents_are_not_hooks(tmp_path: Path) -> None:
    for name in (".x.sh", ".git/x.sh", "lib/x.sh", "a/lib/x.sh", "x.yaml", "x.json", "x.md"):
        put(tmp_path / name)
    put(tmp_path / "x.txt")
    put(tmp_path / "library/x.yml")
    found = find_executables(tmp_path)
    assert [item.name for item in found.executables] == ["library/x.yml"]
    assert found.skipped == ()


def test_a_file_without_execute_permission_is_reported(tmp_path: Path) -> None:
    put(tmp_path / "a/forgotten.sh", executable=False)
    put(tmp_path / "notes.md", executable=False)
    assert find_executables(tmp_path).skipped == ("a/forgotten.sh",)


def test_links_of_a_mounted_config_map_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "..2026_11_23/hook.sh")
    (tmp_path / "..data").symlink_to("..2026_11_23")
    (tmp_path / "hook.sh").symlink_to("..data/hook.sh")
    (tmp_path / "gone.sh").symlink_to("..data/gone.sh")
    found = find_executables(tmp_path)
    assert [item.name for item in found.executables] == ["hook.sh"]
    assert found.skipped == ("gone.sh",)


def test_a_missing_folder_is_an_invalid_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file"):
        find_executables(tmp_path / "hooks")
