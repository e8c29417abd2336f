"""The settings of `retrofit-hooks start`: shell-operator's flags and variables."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from reconciler.config import UNORDERED_LEASE, DurationType
from reconciler.errors import InvalidSetting
from reconciler.installation import INSTALLATIONS, REPLACING, Installation
from reconciler.kube.lease import Timing

T = TypeVar("T", bound=Callable[..., Any])

_MIB: Final = 1024 * 1024
_LEVELS: Final = ("debug", "info", "error")
_TYPES: Final = ("json", "text", "color")
_YES: Final = frozenset({"yes", "true", "1"})

_WITHOUT_EFFECT: Final = {
    "kube_client_qps": ("KUBE_CLIENT_QPS", "this limit does not exist: calls are not slowed down"),
    "kube_client_burst": ("KUBE_CLIENT_BURST", "this limit does not exist"),
    "object_patcher_kube_client_timeout": (
        "OBJECT_PATCHER_KUBE_CLIENT_TIMEOUT",
        "each call has a time limit of its own",
    ),
    "jq_library_path": ("JQ_LIBRARY_PATH", "jq programs of bindings read no libraries"),
    "debug_unix_socket": (
        "DEBUG_UNIX_SOCKET",
        "there is no socket: see kubectl get hooks, and kubectl get updaterequests",
    ),
}
"""Flags of the original that are accepted to keep a Deployment working, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The settings of one of the two servers that the API server calls.

    Attributes:
        flags: Prefix of its flags.
        named: Whether a certificate file is set explicitly, so that it has to exist.
        url: Base address outside a cluster; empty if the Service is used.
    """

    flags: str
    service: str
    certificate: Path
    key: Path
    ca: Path
    named: bool
    client_ca: tuple[Path, ...]
    address: str
    port: int
    url: str

    @property
    def has_files(self) -> bool:
        """Return whether the certificate is in files, and not made by the programs."""
        return self.named or self.certificate.exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """The settings of one process; the texts of their options describe them."""

    hooks_dir: Path
    tmp_dir: Path
    listen_address: str
    listen_port: int
    secure_metrics_port: int
    prefix: str
    kube_context: str
    kube_config: str
    namespace: str
    log_level: str
    log_type: str
    log_time: bool
    proxy_json: bool
    keep_files: bool
    hook_env: tuple[str, ...]
    hook_memory: int
    hook_timeout: float
    lease: Timing
    pod_uid: str
    installation: Installation
    hook_parallel: int
    configuration: str
    admission: WebhookSettings
    conversion: WebhookSettings


def _option(name: str, variable: str, default: Any, text: str, **more: Any) -> Callable[[T], T]:
    more |= {"default": default, "envvar": variable, "help": text}
    return click.option(f"--{name}", show_envvar=True, show_default=default != "", **more)


def _flag(name: str, variable: str, text: str) -> Callable[[T], T]:
    return click.option(
        f"--{name}", is_flag=True, envvar=variable, show_envvar=True, default=False, help=text
    )


def _webhook_options(part: str, port: int) -> Iterator[Callable[[Any], Any]]:
    """Yield the flags of one of the two servers."""
    flag, variable = f"{part}-webhook", f"{part.upper()}_WEBHOOK"
    yield _option(
        f"{flag}-service-name",
        f"{variable}_SERVICE_NAME",
        f"shell-operator-{part}-svc",
        "Service through which the API server reaches this server.",
    )
    for name, file, text in (
        (
            "server-cert",
            "tls.crt",
            "Certificate of this server; the program creates one if it is missing.",
        ),
        ("server-key", "tls.key", "Key of the certificate."),
        ("ca", "ca.crt", "CA that the API server verifies the certificate with."),
    ):
        yield _option(
            f"{flag}-{name}",
            f"{variable}_{name.upper().replace('-', '_')}",
            f"/{part}-certs/{file}",
            text,
        )
    yield click.option(
        f"--{flag}-client-ca",
        multiple=True,
        metavar="FILE",
        envvar=f"{variable}_CLIENT_CA",
        show_envvar=True,
        help="CA of the certificate that callers have to show. May be repeated.",
    )
    yield _option(
        f"{flag}-listen-address",
        f"{variable}_LISTEN_ADDRESS",
        "::",
        "Address that this server listens on; ::, every address.",
    )
    yield _option(f"{flag}-listen-port", f"{variable}_LISTEN_PORT", port, "Port of this server.")
    yield _option(
        f"{flag}-url",
        f"RETROFIT_{variable}_URL",
        "",
        "Base URL of this server outside a cluster, instead of the Service.",
    )


_OPTIONS: Final = (
    _option("hooks-dir", "SHELL_OPERATOR_HOOKS_DIR", "/hooks", "Folder of the hooks."),
    _option(
        "tmp-dir",
        "SHELL_OPERATOR_TMP_DIR",
        "/tmp/shell-operator",  # noqa: S108 - the original's; made private before use
        "Folder of the files that hooks read and write.",
    ),
    _option(
        "listen-address",
        "SHELL_OPERATOR_LISTEN_ADDRESS",
        "::",
        "Address of /metrics, /metrics/hooks, /healthz and /readyz; ::, every address.",
    ),
    _option("listen-port", "SHELL_OPERATOR_LISTEN_PORT", 9115, "Port of these paths."),
    _option(
        "secure-metrics-port",
        "RETROFIT_SECURE_METRICS_PORT",
        0,
        "Port of /metrics and /metrics/hooks by HTTPS, for callers whose token may get /metrics;"
        " they are not on --listen-port then. 0: none.",
    ),
    _option(
        "prometheus-metrics-prefix",
        "SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX",
        "shell_operator_",
        "Prefix of the names of the program's own metrics.",
    ),
    _option("kube-context", "KUBE_CONTEXT", "", "Context of the kubeconfig."),
    _option(
        "kube-config",
        "KUBE_CONFIG",
        "",
        "Kubeconfig file; empty: the Pod's ServiceAccount in a cluster, else the default"
        " kubeconfig.",
    ),
    _option(
        "namespace",
        "POD_NAMESPACE",
        "",
        "Namespace of Hooks and requests; empty: that of the Pod, else default.",
    ),
    _option(
        "policy-group",
        "RETROFIT_POLICY_GROUP",
        REPLACING.group,
        "API group of the requests: Kyverno's, or kube-retrofit.dev, beside a Kyverno.",
        type=click.Choice([*INSTALLATIONS]),
    ),
    _option(
        "log-level",
        "LOG_LEVEL",
        "info",
        "Lowest level of the log lines to write.",
        type=click.Choice(_LEVELS),
    ),
    _option(
        "log-type", "LOG_TYPE", "text", "How log lines are written.", type=click.Choice(_TYPES)
    ),
    _flag("log-no-time", "LOG_NO_TIME", "Leave the time out of log lines."),
    _flag(
        "log-proxy-hook-json",
        "LOG_PROXY_HOOK_JSON",
        "Print JSON lines of hooks as they are, with hook, binding, event, task and queue added.",
    ),
    _option("debug-keep-tmp-files", "DEBUG_KEEP_TMP_FILES", "no", "yes: keep the files of runs."),
    click.option(
        "--hook-env",
        multiple=True,
        metavar="NAME",
        envvar="RETROFIT_HOOK_ENV",
        show_envvar=True,
        help="Name of an additional environment variable for hooks. May be repeated.",
    ),
    _option(
        "hook-memory",
        "RETROFIT_HOOK_MEMORY",
        4096 * _MIB,
        "Largest address space of each process of a hook, bytes; 0: no limit.",
    ),
    _option(
        "hook-timeout",
        "RETROFIT_HOOK_TIMEOUT",
        "0",
        "Time that a run may take; 0: no limit.",
        type=DurationType(),
    ),
    _option(
        "hook-parallel",
        "RETROFIT_HOOK_PARALLEL",
        0,
        "Processes that answer the API server at the same time; 0: two for each core.",
    ),
    _option(
        "validating-webhook-configuration-name",
        "VALIDATING_WEBHOOK_CONFIGURATION_NAME",
        "shell-operator-hooks",
        "Name of the webhook configurations.",
    ),
    *_webhook_options("validating", 9680),
    *_webhook_options("conversion", 9681),
    *(
        _option(
            f"lease-{name}",
            f"RETROFIT_LEASE_{name.upper()}",
            default,
            f"Leader lease: {text}.",
            type=DurationType(),
        )
        for name, default, text in (
            ("duration", "15s", "time after which another replica takes it over"),
            ("renew", "10s", "time after which a leader that cannot renew it stops"),
            ("retry", "2s", "time between attempts"),
        )
    ),
    _option(
        "pod-uid",
        "RETROFIT_POD_UID",
        "",
        "Leader lease: uid of the own Pod, whose restarted container takes it over at once.",
    ),
    *(
        _option(name.replace("_", "-"), variable, "", f"Without effect: {reason}.", hidden=True)
        for name, (variable, reason) in _WITHOUT_EFFECT.items()
    ),
)


def runner_options(command: T) -> T:
    """Add one option for each setting to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def build(values: Mapping[str, Any]) -> RunnerSettings:
    """Return the settings of a parsed command line.

    Raises:
        InvalidSetting: A value is invalid, or values contradict each other.
    """
    hooks_dir, tmp_dir = Path(values["hooks_dir"]), Path(values["tmp_dir"])
    if values["hook_memory"] < 0:
        raise InvalidSetting("--hook-memory must not be negative; 0 is no limit")
    if values["hook_parallel"] < 0:
        raise InvalidSetting("--hook-parallel must not be negative; 0 is two for each core")
    if hooks_dir.resolve() == tmp_dir.resolve():
        raise InvalidSetting("--tmp-dir must not be --hooks-dir")
    lease = Timing(
        duration=values["lease_duration"],
        renew=values["lease_renew"],
        retry=values["lease_retry"],
    )
    if not 0 < lease.retry < lease.renew < lease.duration:
        raise InvalidSetting(UNORDERED_LEASE)
    return RunnerSettings(
        hooks_dir=hooks_dir,
        tmp_dir=tmp_dir,
        listen_address=values["listen_address"],
        listen_port=values["listen_port"],
        secure_metrics_port=values["secure_metrics_port"],
        prefix=values["prometheus_metrics_prefix"],
        kube_context=values["kube_context"],
        kube_config=values["kube_config"],
        namespace=values["namespace"],
        log_level=values["log_level"],
        log_type=values["log_type"],
        log_time=not values["log_no_time"],
        proxy_json=values["log_proxy_hook_json"],
        keep_files=values["debug_keep_tmp_files"].lower() in _YES,
        hook_env=tuple(values["hook_env"]),
        hook_memory=values["hook_memory"],
        hook_timeout=values["hook_timeout"],
        lease=lease,
        pod_uid=values["pod_uid"],
        installation=INSTALLATIONS[values["policy_group"]],
        hook_parallel=values["hook_parallel"] or 2 * (os.cpu_count() or 1),
        configuration=values["validating_webhook_configuration_name"],
        admission=_webhook("validating", values),
        conversion=_webhook("conversion", values),
    )


def _webhook(part: str, values: Mapping[str, Any]) -> WebhookSettings:
    def value(name: str) -> Any:
        return values[f"{part}_webhook_{name}"]

    url = value("url")
    if url and (urlsplit(url).scheme != "https" or not urlsplit(url).hostname):
        raise InvalidSetting(f"--{part}-webhook-url {url!r}: write it as https://host:port")
    files = {"server_cert": "tls.crt", "server_key": "tls.key", "ca": "ca.crt"}
    return WebhookSettings(
        flags=f"--{part}-webhook",
        service=value("service_name"),
        certificate=Path(value("server_cert")),
        key=Path(value("server_key")),
        ca=Path(value("ca")),
        named=any(value(name) != f"/{part}-certs/{file}" for name, file in files.items()),
        client_ca=tuple(Path(file) for file in value("client_ca")),
        address=value("listen_address"),
        port=value("listen_port"),
        url=url,
    )


def without_effect(values: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each setting that is set but has no effect, with the reason."""
    for name, (_, reason) in _WITHOUT_EFFECT.items():
        if values[name]:
            yield f"--{name.replace('_', '-')} has no effect: {reason}"
    if environment.get("JQ_EXEC"):
        yield "JQ_EXEC has no effect: jq programs are evaluated by libjq"
