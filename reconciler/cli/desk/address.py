"""Files that are named by a URL."""

from typing import Final

_SCHEMES: Final = ("https://", "http://")


def is_address(name: str) -> bool:
    """Return whether a name is a URL and not a path."""
    return name.lower().startswith(_SCHEMES)


def fetch(address: str, most: int) -> bytes:
    """Return the content at a URL, at most ``most`` bytes.

    Raises:
        InvalidSetting: The content cannot be read, is too large, or is a web page.
    """
    # The HTTP client takes as long to import as all the rest, and most files are paths.
    from reconciler.cli.desk.fetching import read  # noqa: PLC0415

    return read(address, most)
