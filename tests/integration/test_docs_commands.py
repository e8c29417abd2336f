"""The commands in README and docs do what the pages say, on a real control plane."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from tests.architecture.conftest import ROOT, relative
from tests.documents import DOCUMENTS, Block, blocks, command_blocks

WORLD = Path(__file__).with_name("world")
EXAMPLES = ROOT / "docs" / "examples"
SCRIPTS = Path(sys.executable).parent
README = ROOT / "README.md"
PAGES = [
    page
    for page in DOCUMENTS
    if page != README and any(not block.not_run for block in command_blocks(page))
]
_LONGEST = 180
_FROM_THE_ROOT = ("monitor.md",)
_SET_UP = f"""
kubectl apply -f {WORLD}/shop.yaml
for file in configmap deployments; do
  sed '/resourceVersion/d' $file.yaml | kubectl apply -f -
done
kubectl apply -f reload-web.yaml
kubectl wait --for=condition=Ready --timeout=30s clusterpolicy/reload-web clusterpolicy/cost-center
kubectl patch configmap -n shop web-settings --type=merge -p '{{"data":{{"mode":"loose"}}}}'
kubectl wait -n kyverno --for=create --timeout=30s ur -l '!kube-retrofit.dev/sweep' || true
kubectl get clusterpolicies
"""
_DIFFERS = re.compile(
    r"(?P<name>\b(?:ur|sweep)-[0-9a-f]{32}\b)|(?P<age>(?<!\S)(?:\d+[dhms])+(?!\S))|(?P<space>\s+)"
)
_PATTERNS = {"name": r"(?:ur|sweep)-[0-9a-f]{32}", "age": r"(?:\d+[dhms])+", "space": r"\s+"}


def test_every_block_of_the_documents_is_of_a_known_kind() -> None:
    """A block of another kind, such as bash, would not be run by this module."""
    known = {
        "sh",
        "console",
        "yaml",
        "json",
        "text",
        "promql",
        "jmespath",
        "mermaid",
        "toml",
        "dockerfile",
        "",
    }
    for page in DOCUMENTS:
        found = blocks(page)
        # Steps of a list are indented, with their blocks.
        assert 2 * len(found) == page.read_text().count("```"), page
        for block in found:
            assert block.kind in known, block.place
            bare = "" if block.kind else block.text
            assert not re.search(r"^(\$ |kubectl |retrofit )", bare, re.MULTILINE), block.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The shell of a user, with its start folder and its environment."""

    folder: Path
    environ: dict[str, str]

    def run(self, script: str, *, terminal: bool = False) -> tuple[int, str]:
        """Run commands where the previous call ended, and return their exit code and output."""
        place = self.folder / ".place"
        start = place.read_text().strip() if place.exists() else str(self.folder)
        whole = f"set -e\ncd '{start}'\n{script}\npwd > '{place}'"
        return _bash(whole, self.environ, terminal=terminal)


def _bash(script: str, environ: dict[str, str], *, terminal: bool = False) -> tuple[int, str]:
    near, far = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        ["bash", "-c", script],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=far,
        stderr=far,
        start_new_session=True,
    ) as process:
        os.close(far)
        # A command may watch for ever: the signal ends its process group, with all its children.
        watch = threading.Timer(_LONGEST, os.killpg, (process.pid, signal.SIGKILL))
        watch.start()
        output = b"".join(_chunks(near)).decode()
        code = process.wait()
        watch.cancel()
    return code, output.replace("\r\n", "\n")


def _chunks(descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        # Reading a closed terminal ends with an error, not with an end of file.
        while chunk := stream.read(65536):
            yield chunk


@pytest.fixture(scope="module")
def environ(
    binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The environment after `eval "$(retrofit dev up)"`; the cluster has the pages' objects."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, not programs to start")
    folder = tmp_path_factory.mktemp("documents")
    shutil.copytree(EXAMPLES, folder / "files")
    ours = {**os.environ, "PATH": f"{SCRIPTS}:/usr/local/bin:/usr/bin:/bin"}
    ours.pop("KUBECONFIG", None)
    up = f'cd {folder}/files\neval "$(retrofit dev up --dir {folder}/cluster)"\n'
    try:
        code, output = _bash(f"set -e\n{up}{_SET_UP}\nenv -0 > {folder}/environ", ours)
        assert code == 0, output
        pairs = (folder / "environ").read_text().split("\0")
        found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        yield found | {"COLUMNS": "80", "TERM": "dumb"}
    finally:
        _end(folder / "cluster")


def _end(directory: Path) -> None:
    subprocess.run(
        [SCRIPTS / "retrofit", "dev", "down", "--dir", directory], capture_output=True, check=False
    )


@pytest.fixture
def shell(environ: dict[str, str], tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder with those parts of a checkout that the pages' commands use."""
    for name in (".venv", "manifests", "crds", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    shutil.copytree(EXAMPLES, tmp_path / "docs" / "examples")
    yield Shell(folder=tmp_path, environ=environ)
    _end(tmp_path / ".retrofit")


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_the_readme_works_when_it_is_followed_in_one_shell(shell: Shell) -> None:
    """The reader has a checkout and nothing else: no retrofit on the PATH, and no cluster."""
    bare = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    bare |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "COLUMNS": "80", "TERM": "dumb"}
    commands = [
        command
        for block in command_blocks(README)
        if not block.not_run
        for command in block.commands()
    ]
    reader = Shell(folder=shell.folder, environ=bare)
    code, output = reader.run("\n".join(script for script, _ in commands), terminal=True)
    assert code == 0, output
    missing = _missing("\n".join(expected for _, expected in commands), output)
    assert not missing, f"README shows:\n{missing}\nprinted:\n{output}"


@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_commands_of_a_page_print_what_the_page_shows(shell: Shell, page: Path) -> None:
    if page.name not in _FROM_THE_ROOT:
        # The other pages use the files that README shows.
        assert shell.run("cd docs/examples") == (0, "")
        for name in ("all", page.stem):
            if (WORLD / name).is_dir():
                shutil.copytree(WORLD / name, shell.folder / "docs/examples", dirs_exist_ok=True)
    failed = [
        f"{block.place}\n{problem}"
        for block in command_blocks(page)
        if not block.not_run
        for problem in _problems(shell, block)
    ]
    assert not failed, "\n\n".join(failed)


def _problems(shell: Shell, block: Block) -> Iterator[str]:
    commands = list(block.commands())
    for index, (script, expected) in enumerate(commands):
        code, output = shell.run(script, terminal=block.kind == "console")
        wanted = block.exit if index == len(commands) - 1 else 0
        if code != wanted:
            yield f"{script}\nexit code {code}\n{output}"
        elif missing := _missing(expected, output):
            yield f"{script}\nis said to print:\n{missing}\nprinted:\n{output}"


def _missing(expected: str, printed: str) -> str:
    """Return the first expected line that is not printed in order; ages and names may differ."""
    position = 0
    for line in map(str.strip, expected.splitlines()):
        if line in ("", "..."):
            continue
        # The output may wrap the line at another place.
        found = re.compile(rf"(?<!\S){_pattern(line)}(?!\S)").search(printed, position)
        if found is None:
            return line
        position = found.end()
    return ""


def _pattern(line: str) -> str:
    pattern, position = "", 0
    for found in _DIFFERS.finditer(line):
        pattern += re.escape(line[position : found.start()]) + _PATTERNS[str(found.lastgroup)]
        position = found.end()
    return pattern + re.escape(line[position:])
