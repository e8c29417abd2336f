"""The images of the node, built from Debian packages and the Dockerfile without any registry."""

import re
import shlex
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from e2e.node.running import RigError, Running

ROOT = Path(__file__).parents[2]
PAUSE = "localhost/pause:1"
# The Debian release that has the Python version of the Dockerfile's base image.
_RELEASES = {"3.11": "bookworm", "3.13": "trixie"}
_IN_BASE = "python3,python3-venv,python-is-python3,ca-certificates"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ALIASES = Path("/etc/containers/registries.conf.d/shortnames.conf")
_BUSYBOX = "busybox-static"
_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in an archive file.

    Attributes:
        names: The names that pods use; the file contains the first one.
    """

    names: tuple[str, ...]
    file: Path


class Store:
    """A store of images that is kept between runs."""

    def __init__(self, folder: Path, running: Running) -> None:
        self._folder = folder
        self._running = running
        self._buildah = (
            # In a mount namespace of its own, because it leaves its store mounted.
            *("unshare", "--mount", "buildah", "--storage-driver", "overlay"),
            *("--root", str(folder / "images"), "--runroot", str(folder / "run")),
        )
        (folder / "files").mkdir(parents=True, exist_ok=True)

    def project(self, *names: str) -> Image:
        """Build the Dockerfile as it is now, on a base image of Debian packages."""
        self._make_base()
        with self._running.step("building the image of the Dockerfile"):
            self._build(names[0])
        return self._file("project", names)

    def hooks(self, name: str, dockerfile: str, executables: Path) -> Image:
        """Build the Dockerfile's stage for executables, and an image with executables on it.

        Args:
            name: The name of the image with executables.
            dockerfile: The text of the Dockerfile that users write for it.
            executables: The folder that this Dockerfile adds as ``hooks``.
        """
        self._make_base()
        base = re.search(r"^FROM (\S+)$", dockerfile, re.MULTILINE)
        if not base:
            raise RigError("the Dockerfile of an image with hooks does not say FROM")
        with self._running.step("building the image for hooks of the Dockerfile"):
            self._build(base[1], stage="hooks")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(executables, Path(folder) / "hooks")
            (Path(folder) / "Dockerfile").write_text(dockerfile)
            bud = ("bud", "--isolation", "chroot", "--pull-never")
            self._run(*bud, "--tag", name, folder)
        return self._file("hooks", (name,))

    def _make_base(self) -> None:
        python = _asked_for((ROOT / "Dockerfile").read_text())
        base = f"localhost/python:{python}"
        if not self._has(base):
            with self._running.step(f"making python:{python} of Debian packages"):
                self._base(base, python)

    def released(self, name: str, commit: str) -> Image | None:
        """Build the Dockerfile of another commit, on the base image that `project` has built.

        Return None if this checkout does not have the commit, such as one without history.
        """
        built = f"localhost/kube-retrofit:{commit}"
        if not self._has(built):
            try:
                self._running.ask("git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}")
            except RigError:
                return None
            with (
                self._running.step(f"building {name} of its commit"),
                tempfile.TemporaryDirectory(dir=self._folder) as folder,
            ):
                archive, tree = Path(folder) / "tree.tar", Path(folder) / "tree"
                self._running.run("git", "-C", ROOT, "archive", "-o", archive, commit)
                tree.mkdir()
                self._running.run("tar", "-xf", archive, "-C", tree)
                self._build(built, tree)
        return self._file("released", (built, name))

    def tools(self) -> Image:
        """Return busybox under the name that test cases of other projects use."""
        name = f"{_full_name('busybox')}:1.35"
        if not self._has(name):
            self._from_busybox(name, ("--cmd", "sh"))
        return self._file("busybox", (name,))

    def pause(self) -> Image:
        """Return the image that holds a pod's namespaces; it sleeps until it is killed."""
        if not self._has(PAUSE):
            self._from_busybox(PAUSE, ("--entrypoint", '["/bin/sleep", "99999999"]'))
        return self._file("pause", (PAUSE,))

    def _has(self, name: str) -> bool:
        try:
            return bool(self._running.ask(*self._buildah, "images", "-q", name))
        except RigError:
            return False

    def _file(self, purpose: str, names: tuple[str, ...]) -> Image:
        """Write an image to a file, unless an earlier run has done so."""
        digest = self._running.ask(*self._buildah, "images", "-q", "--no-trunc", names[0])
        # The archive contains the image's name too, so the name of the file depends on both.
        content = f"{digest.rpartition(':')[2][:16]}-{re.sub(r'[^a-z0-9]+', '-', names[0])}"
        wanted = self._folder / "files" / f"{purpose}-{content}.tar"
        for file in wanted.parent.glob(f"{purpose}-*"):
            if file != wanted:
                file.unlink()
        if not wanted.exists():
            part = wanted.with_suffix(".part")
            part.unlink(missing_ok=True)
            self._run("push", names[0], f"docker-archive:{part}:{names[0]}")
            part.replace(wanted)
        return Image(names=names, file=wanted)

    def _run(self, *argv: str) -> None:
        self._running.run(*self._buildah, *argv)

    def _commit(self, name: str, tree: Path, config: tuple[str, ...]) -> None:
        container = self._running.ask(*self._buildah, "from", "scratch")
        self._run("add", "-q", container, str(tree), "/")
        self._run("config", *config, container)
        self._run("commit", "-q", "--rm", container, name)

    def _base(self, name: str, python: str) -> None:
        version = python.partition("-")[0]
        if version not in _RELEASES:
            raise RigError(f"no Debian is known that has Python {version}: add it to {__file__}")
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            # In a mount namespace of its own, so that its mounts end with it.
            self._running.run(
                *("unshare", "--mount", "debootstrap", "--variant=minbase"),
                *(f"--include={_IN_BASE}", _RELEASES[version], folder, self._mirror()),
            )
            shutil.rmtree(Path(folder) / "var/cache/apt", ignore_errors=True)
            shutil.rmtree(Path(folder) / "var/lib/apt/lists", ignore_errors=True)
            self._commit(name, Path(folder), ("--env", f"PATH={_PATH}", "--cmd", "python3"))

    def _mirror(self) -> str:
        """Return the URL of the repository from which this machine gets its Debian packages."""
        lines = self._running.ask("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)")
        for line in lines.splitlines():
            label, _, place = line.partition(" ")
            if label == "Debian":
                return place
        raise RigError("apt-get knows no repository of Debian: run apt-get update")

    def _build(self, name: str, context: Path = ROOT, stage: str = "") -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "pip.conf"
            config.touch(mode=0o600)
            volumes = [f"--volume={config}:/etc/pip.conf:ro"]
            settings = self._pip_settings()
            bundle = Path(settings.get("cert") or _BUNDLE)
            # Paths of this machine do not exist in the build.
            lines = [f"{key} = {it}" for key, it in settings.items() if not it.startswith("/")]
            if bundle.exists():
                lines.append(f"cert = {_BUNDLE}")
                volumes.append(f"--volume={bundle.resolve()}:{_BUNDLE}:ro")
            config.write_text("\n".join(["[global]", *lines, ""]))
            self._run(
                *("bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers"),
                *(*volumes, *((f"--target={stage}",) if stage else ())),
                *("--tag", name, str(context)),
            )

    def _pip_settings(self) -> dict[str, str]:
        """Return pip's settings on this machine, from files and the environment."""
        said = self._running.ask("python3", "-m", "pip", "config", "list")
        found = {}
        for line in said.splitlines():
            key, _, value = line.partition("=")
            found[key.rpartition(".")[2]] = " ".join(shlex.split(value))
        return found

    def _from_busybox(self, name: str, config: tuple[str, ...]) -> None:
        with (
            self._running.step(f"making {name.rpartition('/')[2]}"),
            tempfile.TemporaryDirectory(dir=self._folder) as folder,
        ):
            download, tree = Path(folder) / "download", Path(folder) / "tree"
            download.mkdir()
            # apt drops its privileges for a download and could not write to this folder.
            self._running.run(
                *("env", "-C", download, "apt-get", "download", "-q"),
                *("-o", "APT::Sandbox::User=root", _BUSYBOX),
            )
            (package,) = download.iterdir()
            self._running.run("dpkg-deb", "-x", package, tree)
            (program,) = tree.rglob("bin/busybox")
            root = Path(folder) / "root"
            (root / "bin").mkdir(parents=True)
            program.replace(root / "bin/busybox")
            for applet in self._running.ask(root / "bin/busybox", "--list").split():
                if applet != "busybox":
                    (root / "bin" / applet).symlink_to("busybox")
            (root / "tmp").mkdir(mode=0o777)
            self._commit(name, root, ("--env", "PATH=/bin", *config))


def _full_name(image: str) -> str:
    """Return the full name that this machine's packages define for a short image name."""
    try:
        aliases = tomllib.loads(_ALIASES.read_text())["aliases"]
        return str(aliases[image])
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        msg = f"{_ALIASES} does not say what {image} means (install its package anew): {error}"
        raise RigError(msg) from error


def _asked_for(dockerfile: str) -> str:
    found = re.search(r"^ARG PYTHON=(\S+)$", dockerfile, re.MULTILINE)
    if not found:
        raise RigError("the Dockerfile does not say its Python by ARG PYTHON=")
    return found[1]
