"""Operations of hooks from the text that a hook writes."""

from reconciler.hooks.operations import Operation, decode_operations, read_operations


def parse_operations(text: str) -> tuple[Operation, ...]:
    """Return all operations of a text; none if it is empty."""
    return read_operations(decode_operations(text))
