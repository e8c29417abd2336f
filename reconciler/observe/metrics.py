"""The metrics of both servers; one holder and one registry per process.

Labels are bounded: by constants, by the kinds of the cluster, and for policies and rules by
`BoundedLabels`. Names of triggers and targets, users and namespaces never become labels.
docs/reference/metrics.md lists all metrics.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconciler.observe.labels import BoundedLabels, ResourceLabels, Series

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RULE = ("policy", "rule")
_HOOK = ("hook", "binding", "queue")
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """The metrics of a process, in a registry of their own; their help texts define them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labels = BoundedLabels()
        self._add_requests()
        self._add_serving()
        self._add_work()
        self._add_process()
        self._add_hooks()

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"retrofit_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"retrofit_{name}", meaning, labels, registry=self.registry)

    def _histogram(
        self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        full = f"retrofit_{name}_seconds"
        return Histogram(full, meaning, labels, buckets=buckets, registry=self.registry)

    def _add_requests(self) -> None:
        self.requests_recorded = self._counter(
            "requests_recorded_total", "UpdateRequests stored.", *_RULE, "source"
        )
        self.triggers_joined = self._counter(
            "triggers_joined_total",
            "Admission requests recorded by the UpdateRequest of another attempt.",
            *_RULE,
        )
        self.triggers_diverted = self._counter(
            "triggers_diverted_total",
            "Triggers that raised an aggregate request instead of being recorded by themselves.",
            *_RULE,
        )
        self.diverting = self._gauge(
            "diverting", "1 while rules that can be rebuilt are diverted."
        )
        self.waiting_seen = self._gauge(
            "waiting_seen", "Waiting requests, as known to this replica."
        )
        self.waiting_limit = self._gauge(
            "waiting_limit", "Numbers of waiting requests from which recording changes.", "limit"
        )
        self.requests_lost = self._counter(
            "requests_lost_total", "Triggers admitted without a stored request.", "reason"
        )
        self.mutations = Series(
            self._counter(
                "mutations_total", "Objects that a rule changed before they were stored.", *_RULE
            )
        )
        self.mutations_refused = self._counter(
            "mutations_refused_total",
            "Requests refused under Fail, because a rule could not be applied.",
            "policy",
            "reason",
        )
        self.mutations_lost = self._counter(
            "mutations_lost_total",
            "Objects admitted under Ignore without what a policy would have changed.",
            "policy",
            "reason",
        )
        self.rejections = self._counter(
            "rejections_total", "Requests that a rule refused.", *_RULE
        )
        self.requests_caught_up = self._counter(
            "requests_caught_up_total",
            "Requests for triggers that admission did not record.",
            *_RULE,
        )
        self.triggers_lost = self._counter(
            "triggers_lost_total",
            "Objects changed while a policy was not in force, of rules that cannot be caught up.",
            *_RULE,
        )
        self.loss_spans = self._counter(
            "loss_spans_total",
            "Periods in which a rule lost triggers, whether their number is known or not.",
            *_RULE,
        )
        self.out_of_force = self._gauge(
            "policies_out_of_force", "Policies whose triggers no webhook sees now.", "reason"
        )
        self.catch_up_passes = self._counter(
            "catch_up_passes_total", "Completed searches for lost triggers."
        )
        self.catch_up_done = self._gauge(
            "catch_up_done_timestamp_seconds", "Time up to which lost triggers were searched for."
        )
        self.requests_coalesced = self._counter(
            "requests_coalesced_total", "Requests whose work another request did.", "policy"
        )
        self.requests_ended = self._counter(
            "requests_ended_total", "Requests that ended.", "policy", "state", "reason"
        )
        self.requests_waiting = self._gauge(
            "requests_waiting", "Requests that are not final.", "policy"
        )

    def _add_serving(self) -> None:
        self.admission_reviews = Series(
            self._counter(
                "admission_reviews_total", "Admission requests answered.", "path", "answer"
            )
        )
        self.admission_duration = Series(
            self._histogram(
                "admission_duration", "Admission request received to answered.", _FAST, "path"
            )
        )
        self.recording_duration = self._histogram(
            "recording_duration", "Storing the requests of one admission request.", _FAST
        )
        self.connections = self._gauge("connections", "Connections to the webhook server.")
        self.connections_closed = self._counter(
            "connections_closed_total",
            "Connections that were closed: too slow, too many, or sent too much.",
            "reason",
        )
        self.callers_refused = self._counter(
            "callers_refused_total", "Calls without an accepted client certificate.", "code"
        )
        self.reviews_disbelieved = self._counter(
            "reviews_disbelieved_total",
            "Reviews with an old or deleted object that is not stored.",
            "operation",
        )
        self.reviews_unverified = self._counter(
            "reviews_unverified_total",
            "Reviews with an old or deleted object that could not be read.",
        )
        self.bodies_held = self._gauge(
            "bodies_held_bytes", "Large admission requests that are in memory."
        )
        self.api_calls = self._counter(
            "api_calls_total", "Calls of the API server.", "verb", "resource", "code"
        )

    def _add_work(self) -> None:
        self.attempts = self._counter(
            "attempts_total", "Ended attempts at requests.", "policy", "state"
        )
        self.targets = self._counter("targets_total", "Targets worked on.", "policy", "outcome")
        self.conflicts = self._counter(
            "conflicts_total", "Writes that met a newer version of the target."
        )
        self.shared_writes = self._counter(
            "shared_writes_total", "Requests whose change shared the write of another request."
        )
        self.patch_wars = self._counter(
            "patch_wars_total", "Pauses of a rule at a target where its change was undone."
        )
        self.paused_targets = self._gauge("paused_targets", "Targets that a rule pauses at now.")
        self.queue_depth = self._gauge(
            "queue_depth", "Requests of all policies that are not final."
        )
        self.oldest_waiting = self._gauge(
            "oldest_waiting_seconds", "Age of the oldest request that is not final."
        )
        self.admission_to_patched = self._histogram(
            "admission_to_patched", "Request stored to its last target patched.", _SLOW, "policy"
        )
        self.sweep_triggers = self._counter(
            "sweep_triggers_total", "Existing triggers that fired a rule.", *_RULE
        )

    def _add_process(self) -> None:
        self.events_dropped = self._counter(
            "events_dropped_total", "Events beyond a limit.", "reason"
        )
        self.reports_written = self._counter("reports_written_total", "Reports written.")
        self.report_results_dropped = self._counter(
            "report_results_dropped_total", "Results dropped because too many were waiting."
        )
        self.policies = self._gauge("policies", "Policies known.", "state")
        self.entries = self._gauge(
            "entries", "GlobalContextEntries kept, by whether rules read them.", "state"
        )
        self.entry_failures = self._counter(
            "entry_failures_total", "Times a GlobalContextEntry turned out to be unreadable."
        )
        self.in_flight = self._gauge("in_flight_bytes", "Objects of users in memory, as JSON.")
        self.leader = self._gauge("leader", "1 while this process holds the Lease.")
        self.kyverno_live = self._gauge(
            "kyverno_live", "1 while a live Kyverno is in the cluster."
        )
        self.setting_refused = self._gauge(
            "setting_refused", "1 while a value of the settings ConfigMap is refused.", "key"
        )
        self.webhooks_restored = self._counter(
            "webhooks_restored_total",
            "Webhook configurations that were edited or deleted and are restored.",
            "kind",
            "configuration",
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "When the serving certificate expires."
        )

    def _add_hooks(self) -> None:
        self.hook_runs = self._histogram(
            "hook_run", "Time of runs of declared hooks.", _SLOW, *_HOOK
        )
        self.hook_run_errors = self._counter(
            "hook_run_errors_total", "Runs that failed and are tried again.", *_HOOK
        )
        self.hook_run_allowed_errors = self._counter(
            "hook_run_allowed_errors_total",
            "Runs that failed, which their binding allows.",
            *_HOOK,
        )
        self.hook_run_successes = self._counter(
            "hook_run_success_total", "Runs that went well.", *_HOOK
        )
        self.hook_requests_waiting = self._gauge(
            "hook_requests_waiting", "Requests of declared hooks that wait."
        )
        self.hook_queues_blocked = self._gauge(
            "hook_queues_blocked", "Blocked queues of declared hooks."
        )


def call_counter(metrics: Metrics) -> Callable[[str, str, int, float], None]:
    """Return a callback for verb, resource, status (0: no answer) and seconds of a call."""
    labels = ResourceLabels()

    def count(verb: str, resource: str, status: int, _seconds: float) -> None:
        metrics.api_calls.labels(verb, labels.label(resource, status), str(status)).inc()

    return count
