"""The report of a run of a hook, as text for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from reconciler.cli.desk.emit import paint, render_yaml, title, unified_diff
from reconciler.cli.desk.hooks.effects import Effect
from reconciler.cli.output.masking import Mask
from reconciler.cli.output.screen import screen_of
from reconciler.hooks.metrics import MetricOperation

_NOTHING: Final = "/dev/null"


class Report:
    """Writes the parts of a report as they become available."""

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._screen = screen_of(stream)
        self._mask = mask
        self._begun = False
        self._printed = False

    def contexts(self, contexts: Sequence[dict[str, Any]]) -> None:
        """Write the binding contexts."""
        self._head("Binding contexts")
        self._stream.write(render_yaml(self._mask.value(list(contexts))))

    def line(self, line: str, stream: str) -> None:
        """Write a line of the hook's output, with a heading before the first one."""
        if not self._printed:
            self._head("Output")
        self._printed = True
        mark = "" if stream == "stdout" else f"{stream}: "
        self._stream.write(f"{mark}{self._mask.text(line)}\n")

    def effects(self, effects: Sequence[Effect]) -> None:
        """Write the effects of the operations."""
        self._head("Operations")
        if not effects:
            self._stream.write("none\n")
        for effect in effects:
            for line in self._effect(effect):
                self._stream.write(f"{line}\n")

    def answer(self, said: str, *, refused: bool, warnings: Sequence[str] = ()) -> None:
        """Write the response to the API server."""
        self._head("Answer")
        shown = self._screen.style(self._mask.text(said), fg="red" if refused else "green")
        self._stream.write(f"{shown}\n")
        for warning in warnings:
            self._stream.write(f"Warning: {self._mask.text(warning)}\n")

    def change(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Write the change of an answer to an object."""
        name = title(before)
        shown = self._mask.pair(dict(before), dict(after))
        if before == after:
            self._stream.write(f"{name}: nothing changes\n")
            return
        for line in paint(_diff(*shown, (name, name)), self._screen):
            self._stream.write(f"{line}\n")

    def metrics(self, metrics: Sequence[MetricOperation]) -> None:
        """Write the metrics that the hook reports."""
        self._head("Metrics")
        for item in metrics:
            labels = ",".join(f'{name}="{value}"' for name, value in item.labels)
            shown = f"{item.name}{{{labels}}}" if labels else item.name
            group = f" (group {item.group})" if item.group else ""
            value = f" {item.value:g}" if item.name else ""
            self._stream.write(self._mask.text(f"{item.action} {shown}{value}{group}") + "\n")

    def _effect(self, effect: Effect) -> Iterator[str]:
        head = f"{effect.operation.type} {effect.target}"
        if effect.error:
            yield self._screen.style(f"{head}: {self._mask.text(effect.error)}", fg="red")
            return
        before, after = effect.before or {}, effect.after or {}
        before, after = self._mask.pair(before, after)
        if before == after and effect.before == effect.after:
            yield f"{head}: nothing changes"
            return
        yield self._screen.style(head, bold=True)
        names = (
            effect.target if effect.before else _NOTHING,
            effect.target if effect.after else _NOTHING,
        )
        yield from paint(_diff(before, after, names), self._screen)

    def _head(self, text: str) -> None:
        gap = "\n" if self._begun else ""
        self._stream.write(f"{gap}{self._screen.style(f'# {text}', bold=True)}\n")
        self._begun = True


def _diff(before: dict[str, Any], after: dict[str, Any], names: tuple[str, str]) -> list[str]:
    """Return a diff; for a created or deleted object, it holds all lines."""
    if before and after:
        return unified_diff(before, after, names=names)
    sign, shown = ("+", after) if after else ("-", before)
    lines = [f"{sign}{line}" for line in render_yaml(shown).splitlines()]
    return [f"--- {names[0]}", f"+++ {names[1]}", *lines]
