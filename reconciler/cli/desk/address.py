"""Files that are named by their address."""

from typing import Final

_SCHEMES: Final = ("https://", "http://")


def is_address(name: str) -> bool:
    """Return whether a name is an address and not a path."""
    return name.lower().startswith(_SCHEMES)


def fetch(address: str, most: int) -> bytes:
    """Return what an address gives, at most so many bytes.

    Raises:
        InvalidSetting: It gives nothing, too much, or a page for people.
    """
    # It takes as long to load as all the rest, and most files are paths.
    from reconciler.cli.desk.fetching import read  # noqa: PLC0415

    return read(address, most)
