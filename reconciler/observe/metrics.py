"""The metrics of both servers; one holder and one registry per process.

Labels are bounded: by constants, by the kinds of the cluster, and for policies and rules by
`BoundedLabels`. Names of triggers and targets, users and namespaces never become labels.
docs/reference/metrics.md lists all metrics.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconciler.observe.labels import BoundedLabels, ResourceLabels, Series

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RULE = ("policy", "rule")
_HOOK = ("hook", "binding", "queue")
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics of a process; their help texts define them."""

    registry: CollectorRegistry
    labels: BoundedLabels = field(default_factory=BoundedLabels)
    requests_recorded: Counter
    triggers_joined: Counter
    triggers_diverted: Counter
    diverting: Gauge
    waiting_seen: Gauge
    waiting_limit: Gauge
    requests_lost: Counter
    mutations: Series[Counter]
    mutations_refused: Counter
    mutations_lost: Counter
    rejections: Counter
    requests_caught_up: Counter
    triggers_lost: Counter
    loss_spans: Counter
    out_of_force: Gauge
    catch_up_passes: Counter
    catch_up_done: Gauge
    requests_coalesced: Counter
    requests_ended: Counter
    requests_waiting: Gauge
    admission_reviews: Series[Counter]
    admission_duration: Series[Histogram]
    recording_duration: Histogram
    connections: Gauge
    connections_closed: Counter
    callers_refused: Counter
    reviews_disbelieved: Counter
    reviews_unverified: Counter
    bodies_held: Gauge
    api_calls: Counter
    attempts: Counter
    targets: Counter
    conflicts: Counter
    shared_writes: Counter
    patch_wars: Counter
    paused_targets: Gauge
    queue_depth: Gauge
    oldest_waiting: Gauge
    admission_to_patched: Histogram
    sweep_triggers: Counter
    events_dropped: Counter
    reports_written: Counter
    report_results_dropped: Counter
    policies: Gauge
    entries: Gauge
    entry_failures: Counter
    in_flight: Gauge
    leader: Gauge
    kyverno_live: Gauge
    setting_refused: Gauge
    webhooks_restored: Counter
    certificate_expiry: Gauge
    hook_runs: Histogram
    hook_run_errors: Counter
    hook_run_allowed_errors: Counter
    hook_run_successes: Counter
    hook_requests_waiting: Gauge
    hook_queues_blocked: Gauge


def create_metrics() -> Metrics:
    """Return the metrics of a process, all at zero, in a registry of their own."""
    registry = CollectorRegistry()

    def counter(name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"retrofit_{name}", meaning, labels, registry=registry)

    def gauge(name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"retrofit_{name}", meaning, labels, registry=registry)

    def histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        full = f"retrofit_{name}_seconds"
        return Histogram(full, meaning, labels, buckets=buckets, registry=registry)

    return Metrics(
        registry=registry,
        requests_recorded=counter(
            "requests_recorded_total", "UpdateRequests stored.", *_RULE, "source"
        ),
        triggers_joined=counter(
            "triggers_joined_total",
            "Admission requests recorded by the UpdateRequest of another attempt.",
            *_RULE,
        ),
        triggers_diverted=counter(
            "triggers_diverted_total",
            "Triggers that raised an aggregate request instead of being recorded by themselves.",
            *_RULE,
        ),
        diverting=gauge("diverting", "1 while rules that can be rebuilt are diverted."),
        waiting_seen=gauge("waiting_seen", "Waiting requests, as known to this replica."),
        waiting_limit=gauge(
            "waiting_limit", "Numbers of waiting requests from which recording changes.", "limit"
        ),
        requests_lost=counter(
            "requests_lost_total", "Triggers admitted without a stored request.", "reason"
        ),
        mutations=Series(
            counter(
                "mutations_total", "Objects that a rule changed before they were stored.", *_RULE
            )
        ),
        mutations_refused=counter(
            "mutations_refused_total",
            "Requests refused under Fail, because a rule could not be applied.",
            "policy",
            "reason",
        ),
        mutations_lost=counter(
            "mutations_lost_total",
            "Objects admitted under Ignore without what a policy would have changed.",
            "policy",
            "reason",
        ),
        rejections=counter("rejections_total", "Requests that a rule refused.", *_RULE),
        requests_caught_up=counter(
            "requests_caught_up_total",
            "Requests for triggers that admission did not record.",
            *_RULE,
        ),
        triggers_lost=counter(
            "triggers_lost_total",
            "Objects changed while a policy was not in force, of rules that cannot be caught up.",
            *_RULE,
        ),
        loss_spans=counter(
            "loss_spans_total",
            "Periods in which a rule lost triggers, whether their number is known or not.",
            *_RULE,
        ),
        out_of_force=gauge(
            "policies_out_of_force", "Policies whose triggers no webhook sees now.", "reason"
        ),
        catch_up_passes=counter("catch_up_passes_total", "Completed searches for lost triggers."),
        catch_up_done=gauge(
            "catch_up_done_timestamp_seconds", "Time up to which lost triggers were searched for."
        ),
        requests_coalesced=counter(
            "requests_coalesced_total", "Requests whose work another request did.", "policy"
        ),
        requests_ended=counter(
            "requests_ended_total", "Requests that ended.", "policy", "state", "reason"
        ),
        requests_waiting=gauge("requests_waiting", "Requests that are not final.", "policy"),
        admission_reviews=Series(
            counter("admission_reviews_total", "Admission requests answered.", "path", "answer")
        ),
        admission_duration=Series(
            histogram(
                "admission_duration", "Admission request received to answered.", _FAST, "path"
            )
        ),
        recording_duration=histogram(
            "recording_duration", "Storing the requests of one admission request.", _FAST
        ),
        connections=gauge("connections", "Connections to the webhook server."),
        connections_closed=counter(
            "connections_closed_total",
            "Connections that were closed: too slow, too many, or sent too much.",
            "reason",
        ),
        callers_refused=counter(
            "callers_refused_total", "Calls without an accepted client certificate.", "code"
        ),
        reviews_disbelieved=counter(
            "reviews_disbelieved_total",
            "Reviews with an old or deleted object that is not stored.",
            "operation",
        ),
        reviews_unverified=counter(
            "reviews_unverified_total",
            "Reviews with an old or deleted object that could not be read.",
        ),
        bodies_held=gauge("bodies_held_bytes", "Large admission requests that are in memory."),
        api_calls=counter(
            "api_calls_total", "Calls of the API server.", "verb", "resource", "code"
        ),
        attempts=counter("attempts_total", "Ended attempts at requests.", "policy", "state"),
        targets=counter("targets_total", "Targets worked on.", "policy", "outcome"),
        conflicts=counter("conflicts_total", "Writes that met a newer version of the target."),
        shared_writes=counter(
            "shared_writes_total", "Requests whose change shared the write of another request."
        ),
        patch_wars=counter(
            "patch_wars_total", "Pauses of a rule at a target where its change was undone."
        ),
        paused_targets=gauge("paused_targets", "Targets that a rule pauses at now."),
        queue_depth=gauge("queue_depth", "Requests of all policies that are not final."),
        oldest_waiting=gauge(
            "oldest_waiting_seconds", "Age of the oldest request that is not final."
        ),
        admission_to_patched=histogram(
            "admission_to_patched", "Request stored to its last target patched.", _SLOW, "policy"
        ),
        sweep_triggers=counter(
            "sweep_triggers_total", "Existing triggers that fired a rule.", *_RULE
        ),
        events_dropped=counter("events_dropped_total", "Events beyond a limit.", "reason"),
        reports_written=counter("reports_written_total", "Reports written."),
        report_results_dropped=counter(
            "report_results_dropped_total", "Results dropped because too many were waiting."
        ),
        policies=gauge("policies", "Policies known.", "state"),
        entries=gauge(
            "entries", "GlobalContextEntries kept, by whether rules read them.", "state"
        ),
        entry_failures=counter(
            "entry_failures_total", "Times a GlobalContextEntry turned out to be unreadable."
        ),
        in_flight=gauge("in_flight_bytes", "Objects of users in memory, as JSON."),
        leader=gauge("leader", "1 while this process holds the Lease."),
        kyverno_live=gauge("kyverno_live", "1 while a live Kyverno is in the cluster."),
        setting_refused=gauge(
            "setting_refused", "1 while a value of the settings ConfigMap is refused.", "key"
        ),
        webhooks_restored=counter(
            "webhooks_restored_total",
            "Webhook configurations that were edited or deleted and are restored.",
            "kind",
            "configuration",
        ),
        certificate_expiry=gauge(
            "certificate_expiry_timestamp_seconds", "When the serving certificate expires."
        ),
        hook_runs=histogram("hook_run", "Time of runs of declared hooks.", _SLOW, *_HOOK),
        hook_run_errors=counter(
            "hook_run_errors_total", "Runs that failed and are tried again.", *_HOOK
        ),
        hook_run_allowed_errors=counter(
            "hook_run_allowed_errors_total",
            "Runs that failed, which their binding allows.",
            *_HOOK,
        ),
        hook_run_successes=counter("hook_run_success_total", "Runs that went well.", *_HOOK),
        hook_requests_waiting=gauge(
            "hook_requests_waiting", "Requests of declared hooks that wait."
        ),
        hook_queues_blocked=gauge("hook_queues_blocked", "Blocked queues of declared hooks."),
    )


def call_counter(metrics: Metrics) -> Callable[[str, str, int, float], None]:
    """Return a callback for verb, resource, status (0: no answer) and seconds of a call."""
    labels = ResourceLabels()

    def count(verb: str, resource: str, status: int, _seconds: float) -> None:
        metrics.api_calls.labels(verb, labels.label(resource, status), str(status)).inc()

    return count
