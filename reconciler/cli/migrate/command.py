"""The command line of `retrofit migrate`."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.api.meta import Object, policy_ref
from reconciler.cli.desk.files import STDIN, STDIN_NAME, NamedPath, is_address
from reconciler.cli.desk.live import Address, connection_options
from reconciler.cli.migrate.differences import differences
from reconciler.cli.migrate.files import Rewritten, place_of, rewrite_all, store
from reconciler.cli.migrate.moving import Fate, Move
from reconciler.cli.output.exits import FINDINGS, NOT_RUN
from reconciler.cli.output.screen import Screen, screen_of, warn
from reconciler.cli.output.words import number
from reconciler.dialects.finding import Level
from reconciler.errors import InvalidSetting
from reconciler.installation import BESIDE, INSTALLATIONS, REPLACING

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_WORDS = {Fate.MOVES: "moves", Fate.STAYS: "stays", Fate.STUCK: "cannot move yet"}
_LEVELS = {Fate.MOVES: Level.NOTE, Fate.STAYS: Level.NOTE, Fate.STUCK: Level.ERROR}

_EPILOG = """\b
Examples:
  retrofit migrate policies/
  retrofit migrate policies/ roles.yaml --write
  retrofit migrate policies/ -o moved/ --preview --context staging
  retrofit migrate moved/ --to kyverno.io -o back/
  kubectl get clusterpolicy reload -o yaml | retrofit migrate -
"""


@click.command("migrate", epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--to",
    "group",
    type=click.Choice(tuple(INSTALLATIONS)),
    default=BESIDE.group,
    show_default=True,
    help="The API group that the policies move to.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Rewrite the files; without this flag and -o, nothing is written.",
)
@click.option(
    "--output-dir",
    "-o",
    "folder",
    metavar="DIR",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Write all YAML and JSON files to this folder; the originals stay unchanged.",
)
@click.option(
    "--preview",
    is_flag=True,
    help="Also show what the policies would do in a cluster, as `retrofit preview` does.",
)
@connection_options
def migrate(
    paths: tuple[str, ...],
    *,
    group: str,
    write: bool,
    folder: Path | None,
    preview: bool,
    **address: Any,
) -> None:
    """Move policies between Kyverno's API group and that of kube-retrofit beside a Kyverno.

    PATH is a file, a folder, a quoted wildcard, or - for standard input, which is printed
    rewritten. ClusterPolicies, Policies, PolicyExceptions, GlobalContextEntries, UpdateRequests,
    roles and bindings for the programs, and their ConfigMap get the other group and names;
    comments, order and quotes stay. For each rule, the command shows what will be different.

    \b
    Exit code:
      0  everything can be moved
      1  something cannot be moved, or would be refused then; the rest is moved
      2  could not run: wrong usage, a file cannot be read or written,
         nothing to move
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    _check(paths, write=write, folder=folder)
    target = INSTALLATIONS[group]
    move = Move(source=REPLACING if target is BESIDE else BESIDE, target=target)
    read = list(rewrite_all(paths, move))
    files = [item for item in read if isinstance(item, Rewritten)]
    errors = [item for item in read if isinstance(item, InvalidSetting)]
    if not errors and not any(item.found for item in files):
        text = f"found nothing of {move.source.group}, and no role for its programs"
        errors = [InvalidSetting(f"{' '.join(paths)}: {text}")]
    bad = _report(files, move, dry=not (write or folder or STDIN in paths))
    errors += _store(files, folder) if write or folder else []
    for error in errors:
        warn(f"Error: {error}")
    if errors:
        sys.exit(NOT_RUN)
    if preview:
        # The modules that access a cluster take a second to import.
        from reconciler.cli.migrate.live import show_preview  # noqa: PLC0415

        found = [item for file in files for item in file.policies(group)]
        where = Address(**address, policy_group=group)
        stream = sys.stderr if STDIN in paths else sys.stdout
        bad |= asyncio.run(show_preview(found, move, where, stream))
    if bad:
        sys.exit(FINDINGS)


def _check(paths: Sequence[str], *, write: bool, folder: Path | None) -> None:
    if write and folder:
        raise click.UsageError("--write and --output-dir: give one of them")
    if any(map(is_address, paths)):
        raise click.UsageError("a URL cannot be rewritten: name files or folders")
    if STDIN in paths and (len(paths) > 1 or write or folder):
        raise click.UsageError("standard input (-) is printed rewritten: name nothing beside it")


def _report(files: Iterable[Rewritten], move: Move, *, dry: bool) -> bool:
    """Print which objects move and which do not; return whether the user has to act."""
    fates: Counter[Fate] = Counter()
    bad = False
    for file in files:
        # For standard input, standard output holds nothing but the rewritten content.
        piped = file.source == STDIN_NAME
        stream = sys.stderr if piped else sys.stdout
        screen = screen_of(stream)
        fates.update(item.fate for item in file.found)
        for line, level in _lines(file, move, screen):
            click.echo(line, file=stream)
            bad |= level is Level.ERROR
        if piped:
            # Written as bytes, unsanitized: the output goes to a program, not to a terminal.
            click.echo(file.after.encode(), nl=False)
        elif dry:
            for line in file.diff():
                click.echo(screen.style(line, fg=_COLOURS.get(line[:1])))
    if fates:
        warn(_summary(fates, dry=dry))
    return bad


def _lines(file: Rewritten, move: Move, screen: Screen) -> Iterator[tuple[str, Level]]:
    policies = {policy_ref(item): item for _, item in file.policies(move.target.group)}
    for item in file.found:
        place = f"{file.source}:{item.line}: " + (f"{item.path}: " if item.path else "")
        head = f"{place}{item.kind} {item.name} {_WORDS[item.fate]}"
        yield screen.style(head, bold=True), _LEVELS[item.fate]
        for text in item.remarks:
            yield from ((line, Level.NOTE) for line in screen.fold(text, "  ", hanging="    "))
        for ref in [ref for ref in policies if (ref.kind, ref.name) == (item.kind, item.name)]:
            yield from _of_policy(policies.pop(ref), move, screen)


def _of_policy(policy: Object, move: Move, screen: Screen) -> Iterator[tuple[str, Level]]:
    for rule, text, level in differences(policy, move):
        said = f"rule {rule}: {text}" if rule else text
        yield from ((line, level) for line in screen.fold(said, "  ", hanging="    "))


def _summary(fates: Mapping[Fate, int], *, dry: bool) -> str:
    parts = [f"{number(fates[Fate.MOVES], 'object')} to move"]
    if fates[Fate.STAYS]:
        parts.append(f"{fates[Fate.STAYS]} to stay")
    if fates[Fate.STUCK]:
        parts.append(f"{fates[Fate.STUCK]} to be divided first")
    return ", ".join(parts) + ("; nothing is written: give --write or -o DIR" if dry else "")


def _store(files: Iterable[Rewritten], folder: Path | None) -> list[InvalidSetting]:
    """Write the files, and return the errors of those that could not be written."""
    errors: list[InvalidSetting] = []
    places: dict[Path, Rewritten] = {}
    for file in files:
        if folder is not None or file.after != file.before:
            path = place_of(file, folder)
            if path in places:
                text = f"{path}: {places[path].source} and {file.source} would be written there"
                errors.append(InvalidSetting(f"{text}; move one of them alone"))
            places.setdefault(path, file)
    for path, file in places.items():
        try:
            store(file, path)
        except InvalidSetting as error:
            errors.append(error)
    return errors
