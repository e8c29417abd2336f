"""Settings of the processes: one table of names, defaults and meanings.

Each field is a flag ``--kebab-case`` and an environment variable ``RETROFIT_UPPER_SNAKE`` of the
programs whose dataclass has it; the flag takes precedence. Durations are seconds internally, and
written as ``500ms``, ``30s``, ``10m``, ``24h`` or ``1h30m``; a bare ``0`` means no time.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from typing_extensions import override

from reconciler.errors import InvalidSetting
from reconciler.installation import INSTALLATIONS, REPLACING, Installation

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SHORTEST_TIMEOUT, _LONGEST_TIMEOUT = 1.0, 30.0
_LEAST_SHARE, _WHOLE = 20, 100
"""Percent; the leader does not publish counts below a tenth of a limit."""
PAGE_BYTES = 8 * 1024 * 1024
"""Default for the largest page of a list, in bytes."""
UNORDERED_LEASE = (
    "--lease-retry must be shorter than --lease-renew, and --lease-renew shorter than"
    " --lease-duration; none of them may be 0"
)
_LEAST_IN_FLIGHT = 1024 * 1024
LEAST: dict[str, float] = {
    **dict.fromkeys(("waiting_limit", "retain_per_policy", "patch_war_limit"), 0),
    **dict.fromkeys(("max_snapshots", "max_reads"), 0),
    **dict.fromkeys(("hard_limit", "max_connections", "max_body", "max_bodies"), 1),
    **dict.fromkeys(("lanes", "list_page", "conflict_retries", "max_entry", "max_recorded"), 1),
    # Without a pause, a loop would call the API server all the time.
    **dict.fromkeys(("backoff_base", "backoff_ceiling"), 0.1),
    **dict.fromkeys(("resync", "header_timeout", "body_timeout", "patch_war_window"), 1.0),
}
"""The least value of a setting that may not have every value."""
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

T = TypeVar("T", bound=Callable[..., Any])


def parse_duration(text: str) -> float:
    """Return the seconds of a duration text.

    Raises:
        InvalidSetting: The text is not a duration.
    """
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        msg = f"{text!r} is not a duration: write it as 500ms, 30s, 10m, 24h or 1h30m"
        raise InvalidSetting(msg)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def render_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` parses back, to the millisecond."""
    left, text = round(seconds * 1000), ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0"


class DurationType(click.ParamType[float]):
    """A duration as a type of a flag: a number of seconds, or `parse_duration`'s text."""

    name = "duration"

    @override
    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            return float(value) if isinstance(value, int | float) else parse_duration(value)
        except InvalidSetting as error:
            self.fail(str(error), param, ctx)


def _setting(
    default: Any, meaning: str, *, choices: str = "", name: str = "", empty: bool = False
) -> Any:
    """Return a setting; a float is a duration, and ``empty`` that an empty variable counts."""
    metadata = {"help": meaning, "choices": choices, "name": name, "empty": empty}
    return field(default=default, metadata=metadata)


def _name(name: str, meaning: str) -> Any:
    """Return a setting whose default is a name of the chosen installation."""
    return _setting(getattr(REPLACING, name), meaning, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings that both servers share."""

    kubeconfig: str = _setting(
        "",
        "Kubeconfig file; empty: the Pod's ServiceAccount in a cluster, else the default"
        " kubeconfig.",
    )
    context: str = _setting("", "Context of the kubeconfig; empty: its current one.")
    policy_group: str = _setting(
        REPLACING.group,
        "API group of policies and requests: kyverno.io, in whose place the programs work, or"
        " kube-retrofit.dev, beside a Kyverno.",
        choices="|".join(INSTALLATIONS),
    )
    namespace: str = _name("namespace", "Namespace that holds UpdateRequests and settings.")
    bind_address: str = _setting("::", "Address that the servers listen on; ::, every address.")
    metrics_port: int = _setting(8000, "Port of /metrics, /healthz and /readyz.")
    secure_metrics_port: int = _setting(
        0,
        "Port of /metrics by HTTPS, for callers whose token may get that path; it is not on"
        " --metrics-port then. 0: none.",
    )
    background_service_account: str = _name(
        "background_account",
        "ServiceAccount in whose name policies read, call and write.",
    )
    controller_service_account: str = _name(
        "controller_account",
        "ServiceAccount of the controller itself, for its own objects.",
    )
    allow_metadata: str = _setting(
        "",
        "Fields of a target's metadata that patches may change though they decide when it is"
        " deleted, separated by commas: ownerReferences, finalizers.",
    )
    enable_policy_exception: bool = _setting(default=False, meaning="Honour PolicyExceptions.")
    exception_namespace: str = _setting(
        "",
        "Namespaces whose PolicyExceptions are honoured, patterns separated by commas; *: all.",
    )
    generate_success_events: bool = _setting(
        default=False, meaning="Also emit events for successes."
    )
    service_hosts: str = _setting(
        "*.svc,*.svc.cluster.local",
        "Hosts that context entries may call, patterns separated by commas; empty: none.",
        empty=True,
    )
    cue: str = _setting(
        "",
        "File of the cue command, which evaluates the CUE of kinitiras' policies; empty: such"
        " policies are refused.",
    )
    max_entry: int = _setting(
        16 * 1024 * 1024,
        "Largest objects that one GlobalContextEntry keeps, together, bytes of JSON.",
    )
    take_over: bool = _setting(
        default=False,
        meaning="Work although a live Kyverno is in the cluster, and process its requests too.",
    )
    waiting_limit: int = _setting(
        10_000,
        "Number of waiting requests from which a rule that can be rebuilt gets one aggregate"
        " request; 0: never.",
    )
    hard_limit: int = _setting(
        100_000, "Number of waiting requests from which nothing more is recorded one by one."
    )
    namespace_share: int = _setting(
        50,
        "Percent of both limits that the triggers of one namespace may take, from 20; 100: all.",
    )
    policy_share: int = _setting(
        75, "Percent of both limits that the requests of one policy may take, from 20; 100: all."
    )
    startup_timeout: float = _setting(
        0.0,
        "Give up if the API server does not answer for this long at the start; 0: wait forever.",
    )
    audit_log: str = _setting(
        "",
        "File that gets a line for each trigger and each target; -: standard output; empty: none.",
    )
    log_format: str = _setting("json", "How log lines are written.", choices="json|console")
    log_level: str = _setting(
        "info", "Lowest level of the log lines to write.", choices="debug|info|warning|error"
    )

    @property
    def installation(self) -> Installation:
        """Return the installation of the policy group."""
        return INSTALLATIONS[self.policy_group]

    @property
    def callable_hosts(self) -> tuple[str, ...]:
        """Return the patterns of the hosts that context entries may call."""
        return tuple(filter(None, self.service_hosts.split(",")))

    @property
    def background_user(self) -> str:
        """Return the full name of the user that works for policies by default."""
        return f"system:serviceaccount:{self.namespace}:{self.background_service_account}"

    @property
    def controller_users(self) -> tuple[str, str]:
        """Return the full names of the users whose requests are the controller's own."""
        controller = f"system:serviceaccount:{self.namespace}:{self.controller_service_account}"
        return self.background_user, controller


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings(ProcessSettings):
    """The settings of `retrofit-admission`."""

    port: int = _setting(9443, "Port of the webhook server.")
    ask_authors: str = _setting(
        "policies",
        "Objects whose author must have the rights that they use: namespaced Policies and objects"
        " that name an account, all ClusterPolicies too, or none.",
        choices="policies|all|none",
    )
    service: str = _name("service", "Service through which the API server reaches the webhook.")
    webhook_url: str = _setting(
        "", "Base URL of the webhook outside a cluster, instead of the Service."
    )
    webhook_timeout: float = _setting(
        10.0, "Time that the API server waits; half of it is for one answer."
    )
    drain_timeout: float = _setting(10.0, "Time to finish requests at the end.")
    client_ca_file: str = _setting(
        "",
        "File with the CA, in PEM, of the client certificate that callers must show; empty: they"
        " need none.",
    )
    client_names: str = _setting(
        "",
        "Names, one of which a client certificate must have, separated by commas; empty: any.",
    )
    header_timeout: float = _setting(
        5.0, "Time for a TLS handshake, and for the head of a request."
    )
    body_timeout: float = _setting(10.0, "Time for the body of a request.")
    max_connections: int = _setting(512, "Connections to the webhook server at the same time.")
    max_body: int = _setting(8 * 1024 * 1024, "Largest admission request, bytes.")
    max_bodies: int = _setting(
        32 * 1024 * 1024,
        "Admission requests of more than 64 KiB that are in memory at the same time, bytes.",
    )
    max_reads: int = _setting(
        8 * 1024 * 1024,
        "What context entries have read for admission requests that are not answered yet, bytes of"
        " JSON; others wait before they read. 0: no limit.",
    )
    max_recorded: int = _setting(512 * 1024, "Largest recorded part of an object, bytes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(ProcessSettings):
    """The settings of `retrofit-controller`."""

    service: str = _name("service", "Service through which the API server reaches the webhook.")
    webhook_url: str = _setting(
        "", "Base URL of the webhook outside a cluster, instead of the Service."
    )
    webhook_timeout: float = _setting(10.0, "Time that the API server waits for the webhook.")
    lease_duration: float = _setting(
        15.0, "Leader lease: time after which another replica takes it over."
    )
    lease_renew: float = _setting(
        10.0, "Leader lease: time after which a leader that cannot renew it stops."
    )
    lease_retry: float = _setting(2.0, "Leader lease: time between attempts.")
    pod_uid: str = _setting(
        "", "Leader lease: uid of the own Pod, whose restarted container takes it over at once."
    )
    retain_completed: float = _setting(600.0, "Keep Completed requests.")
    retain_skip: float = _setting(600.0, "Keep Skip requests.")
    retain_failed: float = _setting(86400.0, "Keep Failed requests.")
    retain_per_policy: int = _setting(1000, "Finished requests kept per policy at most.")
    reports: bool = _setting(default=True, meaning="Write results at targets into PolicyReports.")
    force_failure_policy_ignore: bool = _setting(
        default=False,
        meaning="Put all policies under failurePolicy: Ignore, whatever they say.",
    )
    filter_targets: bool = _setting(
        default=False, meaning="Skip targets that resourceFilters names, as triggers are."
    )
    ready_if_stored: bool = _setting(
        default=False,
        meaning="Let a policy be Ready even if none of its rules is acted on; its message says"
        " so.",
    )
    list_page: int = _setting(500, "Objects per page of a list.")
    max_in_flight: int = _setting(
        8 * PAGE_BYTES,
        "Objects of users that are in memory at the same time, bytes of JSON; a page of a list is"
        " no larger than an eighth of it. 0: no limit.",
    )
    max_snapshots: int = _setting(
        8 * PAGE_BYTES,
        "Objects that all hooks keep for their snapshots together, bytes of JSON; a hook beyond it"
        " is not Ready. 0: no limit.",
    )
    lanes: int = _setting(64, "Targets worked on at the same time.")
    conflict_retries: int = _setting(10, "Evaluations of one target per attempt after a 409.")
    patch_war_limit: int = _setting(
        10,
        "How often a rule may undo the changes of others to a target, or trigger itself, within"
        " the window; then it pauses there. 0: without limit.",
    )
    patch_war_window: float = _setting(
        300.0, "Time in which such writes count, and that the pause takes."
    )
    backoff_base: float = _setting(1.0, "First pause of a request that failed.")
    backoff_ceiling: float = _setting(300.0, "Longest pause.")
    confirmation: float = _setting(
        120.0, "Time until a trigger that is not stored counts as refused."
    )
    request_timeout: float = _setting(
        60.0, "The API server's --request-timeout: a trigger is stored by then."
    )
    resync: float = _setting(30.0, "Pause between full lists of waiting requests.")
    catch_up_interval: float = _setting(
        300.0, "Pause between searches for triggers that were not recorded; 0: only after outages."
    )
    ready_margin: float = _setting(0.5, "Pause between a stored webhook configuration and Ready.")
    drain_timeout: float = _setting(10.0, "Time to finish work at the end.")

    @property
    def page_bytes(self) -> int:
        """Return the limit of a list page in bytes, or 0 for no limit."""
        return self.max_in_flight // 8


S = TypeVar("S", bound=ProcessSettings)


def options(settings: type[ProcessSettings]) -> Callable[[T], T]:
    """Return a decorator that adds one option per field to a click command."""

    def decorate(command: T) -> T:
        for item in reversed(dataclasses.fields(settings)):
            flag = "--" + item.name.replace("_", "-")
            command = click.option(flag, **_behaviour(item))(command)
        return command

    return decorate


def _behaviour(item: dataclasses.Field[Any]) -> dict[str, Any]:
    choices = item.metadata["choices"]
    default: Any = item.default
    shown = render_duration(default) if item.type is float else default
    shown = str(shown).lower() if item.type is bool else shown
    kind: Any = item.type
    if choices:
        kind = click.Choice(choices.split("|"))
    elif kind is float:
        kind = DurationType()
    if item.metadata["empty"]:
        default = None  # `build` sets it: click takes an empty variable as not set.
    if name := item.metadata["name"]:
        default = None  # `build` sets it, because it depends on the installation.
        names = {group: getattr(other, name) for group, other in INSTALLATIONS.items()}
        if len({*names.values()}) > 1:
            shown = ", ".join(f"{value} with {group}" for group, value in names.items())
    # A switch takes a value, so that flag and environment variable have the same syntax.
    switch = {"is_flag": False, "flag_value": True} if kind is bool else {}
    return {
        **switch,
        "default": default,
        "type": kind,
        "envvar": "RETROFIT_" + item.name.upper(),
        "show_envvar": True,
        "help": item.metadata["help"],
        "show_default": str(shown) if shown != "" else False,
    }


def build(
    settings: type[S], values: dict[str, Any], environment: Mapping[str, str] | None = None
) -> S:
    """Return the settings of a parsed command line, in an environment of variables.

    Raises:
        InvalidSetting: A value is out of range, or values contradict each other.
    """
    built = settings(**_empty(settings, environment or {}) | _named(settings, values))
    if built.enable_policy_exception and not built.exception_namespace.strip():
        raise InvalidSetting(
            "--enable-policy-exception needs --exception-namespace: the namespaces whose"
            " PolicyExceptions count, or * for all of them"
        )
    if built.take_over and not built.installation.stands_by:
        msg = f"--take-over needs --policy-group={REPLACING.group}: there is nothing to take over"
        raise InvalidSetting(msg)
    for name, least in LEAST.items():
        if getattr(built, name, least) < least:
            shown = least if isinstance(least, int) else render_duration(least)
            raise InvalidSetting(f"--{name.replace('_', '-')} must be at least {shown}")
    for name in ("namespace_share", "policy_share"):
        if not _LEAST_SHARE <= getattr(built, name) <= _WHOLE:
            msg = f"--{name.replace('_', '-')} must be from {_LEAST_SHARE} to {_WHOLE}"
            raise InvalidSetting(msg)
    timeout = getattr(built, "webhook_timeout", 1.0)
    if not _SHORTEST_TIMEOUT <= timeout <= _LONGEST_TIMEOUT:
        msg = "--webhook-timeout must be from 1s to 30s: the API server waits no longer"
        raise InvalidSetting(msg)
    if isinstance(built, ControllerSettings):
        _check(built)
    if isinstance(built, AdmissionSettings):
        _check_server(built)
    return built


def _empty(settings: type[ProcessSettings], environment: Mapping[str, str]) -> dict[str, Any]:
    fields = [item.name for item in dataclasses.fields(settings) if item.metadata["empty"]]
    return {name: "" for name in fields if environment.get("RETROFIT_" + name.upper()) == ""}


def _named(settings: type[ProcessSettings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with the installation's names as defaults."""
    installation = INSTALLATIONS[values.get("policy_group", REPLACING.group)]
    names = {
        item.name: getattr(installation, item.metadata["name"])
        for item in dataclasses.fields(settings)
        if item.metadata["name"]
    }
    return {**names, **{name: value for name, value in values.items() if value is not None}}


def _check_server(settings: AdmissionSettings) -> None:
    if settings.client_names.strip() and not settings.client_ca_file:
        raise InvalidSetting(
            "--client-names needs --client-ca-file: without it no certificate is required"
        )


def _check(settings: ControllerSettings) -> None:
    if not 0 < settings.lease_retry < settings.lease_renew < settings.lease_duration:
        raise InvalidSetting(UNORDERED_LEASE)
    if settings.max_in_flight and settings.max_in_flight < _LEAST_IN_FLIGHT:
        raise InvalidSetting("--max-in-flight must be at least 1048576; 0 is no limit")
