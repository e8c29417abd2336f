"""Address and credentials for the API server: kubeconfig or ServiceAccount, reread on rotation.

A projected ServiceAccount token lives about an hour and is replaced in its file; tokens of exec
plugins expire too. They are read again after a minute, and immediately after a 401.
"""

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import MarkedYAMLError, YAMLError
from yaml.reader import ReaderError

from reconciler.clock import Clock
from reconciler.errors import InvalidSetting
from reconciler.kube.kubeconfig import context_of

_LOG = logging.getLogger(__name__)
_REREAD = 60.0
_LEAST_BETWEEN = 5.0
_MISSHAPEN = (KeyError, TypeError, AttributeError)
_UNREADABLE = (ConfigException, OSError, YAMLError, ValueError, *_MISSHAPEN)
# Messages of the library, and what they mean to the owner of the kubeconfig.
_MEANINGS: Final = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"File does not exists?: (.+)", "the file {} that it names does not exist"),
        (r"Expected key (\S+)", "the field {} is missing"),
        (r"^oidc: No valid id-token", "the login has ended: log in again"),
    )
)


_Read = Callable[..., Awaitable[None]]
"""Reads into a configuration; with ``anew`` the kept result of an exec plugin is discarded."""


async def _read_account(configuration: Any, *, anew: bool) -> None:
    del anew
    load: Any = load_incluster_config  # without types
    load(client_configuration=configuration, try_refresh_token=False)


class _Kubeconfig:
    def __init__(self, files: Sequence[Path], context: str) -> None:
        self.place = f"kubeconfig {os.pathsep.join(map(str, files))}"
        self._files = files
        self._context = context
        self._loader: Any = None

    async def read(self, configuration: Any, *, anew: bool) -> None:
        if self._loader is not None and not anew:
            if "exec" in (self._loader._user or ()) and not hasattr(  # noqa: SLF001
                self._loader, "exec_plugin_expiry"
            ):
                return  # A plugin that names no expiry is run again only after a 401.
            await self._loader.load_and_set(configuration)
            return
        load: Any = load_kube_config  # without types
        self._loader = await load(
            config_file=os.pathsep.join(map(str, self._files)),
            context=context_of(self._files, self._context),
            client_configuration=configuration,
            persist_config=False,
        )
        self._check_plugin(configuration)

    def _check_plugin(self, configuration: Any) -> None:
        # The library only logs the failure of a plugin and continues without credentials.
        user = self._loader._user or {}  # noqa: SLF001
        if "exec" in user and not (configuration.api_key or configuration.cert_file):
            plugin = user["exec"]["command"]
            msg = f"its plugin {plugin} returns no credentials: install it, or log in with it"
            raise InvalidSetting(f"{self.place}: {msg}")


class Credentials:
    """The client's configuration and the current Authorization header.

    Attributes:
        place: Name of their source, for messages.
    """

    def __init__(self, place: str, read: _Read, clock: Clock) -> None:
        self.configuration: Any = Configuration()
        self.place = place
        self._read = read
        self._clock = clock
        self._lock = asyncio.Lock()
        self._authorization = ""
        self._read_at = clock.monotonic()
        self._renewed_at = self._read_at - _LEAST_BETWEEN

    async def authorization(self) -> str:
        """Return the header's value; empty if a client certificate authenticates."""
        if self._clock.monotonic() - self._read_at >= _REREAD:
            async with self._lock:
                if self._clock.monotonic() - self._read_at >= _REREAD:
                    await self._try_read(anew=False)
        return self._authorization

    async def renew(self, refused: str) -> bool:
        """Read the credentials again after a 401; return whether another attempt makes sense."""
        async with self._lock:
            if self._authorization != refused:
                return True
            if self._clock.monotonic() - self._renewed_at < _LEAST_BETWEEN:
                return False
            self._renewed_at = self._clock.monotonic()
            await self._try_read(anew=True)
            return self._authorization != refused

    async def read(self, *, anew: bool) -> None:
        """Read the source into the configuration.

        Raises:
            InvalidSetting: The source cannot be used.
        """
        self._read_at = self._clock.monotonic()
        try:
            await self._read(self.configuration, anew=anew)
        except _UNREADABLE as error:
            raise InvalidSetting(f"{self.place}: {_meaning(error)}") from error
        sent = str(self.configuration.api_key.get("BearerToken", "")).strip()
        if not sent.isprintable():
            msg = "its token has a line end, or another control character, within: correct it"
            raise InvalidSetting(f"{self.place}: {msg}")
        self._authorization = sent

    def unusable(self) -> str:
        """Return which certificates cannot be loaded, where some cannot."""
        try:
            ssl.create_default_context(cafile=self.configuration.ssl_ca_cert)
        except (OSError, ValueError):
            return "the certificate authority of its cluster"
        return "the client certificate and key of its user"

    async def _try_read(self, *, anew: bool) -> None:
        try:
            await self.read(anew=anew)
        except InvalidSetting as error:
            _LOG.warning("%s; continuing with the old ones", error)


def _meaning(error: Exception) -> str:
    match error:
        case MarkedYAMLError(problem_mark=mark, problem=problem) if mark is not None:
            return f"it is not YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}"
        case ReaderError(reason=reason, position=position):
            return f"it is not YAML: character {position + 1}: {reason}"
        case UnicodeError():
            return "it is not UTF-8: save it as UTF-8"
        case ConfigException():
            text = " ".join(str(error).split())
            for pattern, meaning in _MEANINGS:
                if found := pattern.search(text):
                    return meaning.format(*found.groups())
            return f"it cannot be used: {text}"
        case OSError(strerror=str(text), filename=name):
            return f"{name}: {text.lower()}" if name else text.lower()
        case _:
            return "it is malformed"


async def load_credentials(kubeconfig: str, context: str, clock: Clock) -> Credentials:
    """Read the named kubeconfig; without one, the ServiceAccount or the usual kubeconfig.

    Raises:
        InvalidSetting: There are no credentials, or they cannot be used.
    """
    credentials = Credentials(*_source(kubeconfig, context), clock)
    # Like Go, and Python before 3.13: the CAs of old clusters lack key identifiers, for example.
    credentials.configuration.disable_strict_ssl_verification = True
    await credentials.read(anew=True)
    return credentials


def _source(kubeconfig: str, context: str) -> tuple[str, _Read]:
    if not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "the ServiceAccount's token", _read_account
    places = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    # Unlike pathlib, this leaves "~" for a user who has no home.
    spelled = map(os.path.expanduser, places.split(os.pathsep))
    named = [Path(place) for place in spelled if place]
    files = [file for file in named if file.is_file()]
    if not files:
        raise InvalidSetting(
            f"there is no kubeconfig {places}: name one with --kubeconfig (of retrofit-hooks:"
            " --kube-config), or run inside a cluster"
        )
    source = _Kubeconfig(files, context)
    return source.place, source.read
