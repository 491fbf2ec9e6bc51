"""The metrics of capox, under the names that controller-runtime has made common, so that existing dashboards work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

__all__ = [
    "OUTCOMES",
    "CallMetrics",
    "EventMetrics",
    "LeaseMetrics",
    "LoopMetrics",
    "NodeMetrics",
    "QueueMetrics",
    "Registry",
    "ServiceMetrics",
    "WatchMetrics",
]

OUTCOMES: Final = ("success", "requeue_after", "error")
"""How a pass can end; a counter of each is there from the start, at 0."""

_SECONDS_BUCKETS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60)


class Registry(CollectorRegistry):
    """Where a process's metrics are; one a process, given to whoever counts, never global."""

    content_type: Final = CONTENT_TYPE_LATEST
    """The media type of `render`."""

    def __init__(self) -> None:
        # The times at which series began are nobody's question here, and would double their number.
        disable_created_metrics()
        super().__init__()

    def render(self) -> bytes:
        """Give all metrics in Prometheus' text format."""
        return generate_latest(self)

    def value(self, sample: str, /, **labels: str) -> float | None:
        """Give one sample, or None when there is no such series."""
        return self.get_sample_value(sample, labels)


class QueueMetrics:
    """Counts what the work queues do.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reconciles = Counter(
            "controller_runtime_reconcile",
            "Number of passes of a controller, by how they ended.",
            ("controller", "result"),
            registry=registry,
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Passes that failed.", ("controller",), registry=registry
        )
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long a pass of a controller took.",
            ("controller",),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "How many passes of a controller may run at once.",
            ("controller",),
            registry=registry,
        )
        self._active = Gauge(
            "controller_runtime_active_workers", "Passes that run now.", ("controller",), registry=registry
        )
        self._depth = Gauge("workqueue_depth", "Keys that wait for a worker.", ("name",), registry=registry)
        self._adds = Counter("workqueue_adds", "Keys that were queued.", ("name",), registry=registry)
        self._retries = Counter("workqueue_retries", "Keys that failed and come back.", ("name",), registry=registry)
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key waited for a worker.",
            ("name",),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest of the present passes has run.",
            ("name",),
            registry=registry,
        )

    def register(self, name: str, workers: int, longest_seconds: Callable[[], float]) -> None:
        """Have all series of a queue from the start, at 0, so that a rate over them is never missing."""
        for outcome in OUTCOMES:
            self._reconciles.labels(name, outcome)
        for metric in (self._errors, self._seconds, self._active, self._depth, self._adds, self._retries, self._waits):
            metric.labels(name)
        self._workers.labels(name).set(workers)
        self._longest.labels(name).set_function(longest_seconds)

    def on_add(self, name: str, depth: int) -> None:
        """A key was queued."""
        self._adds.labels(name).inc()
        self._depth.labels(name).set(depth)

    def on_take(self, name: str, waited_seconds: float, depth: int, active: int) -> None:
        """A worker has taken a key."""
        self._waits.labels(name).observe(waited_seconds)
        self._depth.labels(name).set(depth)
        self._active.labels(name).set(active)

    def on_retry(self, name: str) -> None:
        """A key failed."""
        self._errors.labels(name).inc()
        self._retries.labels(name).inc()

    def on_done(self, name: str, outcome: str, seconds: float, active: int) -> None:
        """A pass has ended."""
        self._reconciles.labels(name, outcome).inc()
        self._seconds.labels(name).observe(seconds)
        self._active.labels(name).set(active)


class WatchMetrics:
    """Counts what comes from the watches.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "capox_watch_events", "Objects that the watches have told of.", ("kind",), registry=registry
        )
        self._relists = Counter(
            "capox_relists", "Periodic lists of all objects.", ("kind", "result"), registry=registry
        )
        self._live = Gauge("capox_watch_live", "Whether a kind is being watched.", ("kind",), registry=registry)
        self._restarts = Counter("capox_watch_restarts", "How often all watches were begun again.", registry=registry)

    def register(self, kind: str) -> None:
        """Have all series of a kind from the start."""
        self._events.labels(kind)
        self._live.labels(kind)
        for result in ("success", "error"):
            self._relists.labels(kind, result)

    def on_event(self, kind: str) -> None:
        """A watch has told of an object."""
        self._events.labels(kind).inc()

    def on_live(self, kind: str, *, is_live: bool) -> None:
        """A kind is, or is not, being watched."""
        self._live.labels(kind).set(1 if is_live else 0)

    def on_restart(self) -> None:
        """All watches are begun again."""
        self._restarts.inc()

    def on_relist(self, kind: str, *, is_success: bool) -> None:
        """A periodic list has ended."""
        self._relists.labels(kind, "success" if is_success else "error").inc()


class LoopMetrics:
    """Tells how late the event loop is.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge("capox_event_loop_lag_seconds", "How late the event loop was.", registry=registry)

    def on_lag(self, seconds: float) -> None:
        """The loop was looked at."""
        self._lag.set(seconds)


class LeaseMetrics:
    """Tells which Leases this process holds.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._holding = Gauge(
            "leader_election_master_status",
            "Whether this process holds a Lease.",
            ("name",),
            registry=registry,
        )

    def on_change(self, name: str, *, is_held: bool) -> None:
        """A Lease was taken or lost."""
        self._holding.labels(name).set(1 if is_held else 0)


class EventMetrics:
    """Counts what became of Events.

    Args:
        registry: Where the metrics are registered.
    """

    RESULTS: Final = ("sent", "repeated", "dropped", "refused")
    """Sent as a new Event, as one more of a known one, dropped by a limit, or refused by the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "capox_events", "Events for people, by what became of them.", ("result",), registry=registry
        )
        for result in self.RESULTS:
            self._events.labels(result)

    def on_event(self, result: str) -> None:
        """An Event has come to its end."""
        self._events.labels(result).inc()


class NodeMetrics:
    """Tells how long Nodes take to begin, under the names that all cloud controller managers use, and how they end.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        buckets = (1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
        self._untainted = Histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Time from the making of a Node to the removal of its taint.",
            buckets=buckets,
            registry=registry,
        )
        self._synced = Histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "Time from the making of a Node to its first synchronisation.",
            buckets=buckets,
            registry=registry,
        )
        self._deletions = Counter(
            "capox_node_deletions",
            "Nodes whose instances are gone, by what came of it.",
            ("result",),
            registry=registry,
        )
        self._held = Gauge("capox_node_deletions_held", "Deletions of Nodes that are held back now.", registry=registry)
        for result in ("success", "error"):
            self._deletions.labels(result)

    def on_initialised(self, seconds: float) -> None:
        """A Node has lost its taint so long after it was made."""
        self._untainted.observe(seconds)
        self._synced.observe(seconds)

    def on_deletion(self, *, is_success: bool) -> None:
        """A Node was deleted, or could not be."""
        self._deletions.labels("success" if is_success else "error").inc()

    def on_held(self, nodes: int) -> None:
        """So many deletions are held back now."""
        self._held.set(nodes)


class ServiceMetrics:
    """Tells how load balancers follow Services and Nodes, under the names that all cloud controller managers use.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        # The steps that dashboards know, and two for what takes no second here.
        buckets = (0.1, 0.5, *(float(2**step) for step in range(15)))
        self._syncs = Counter(
            "service_controller_loadbalancer_sync",
            "Passes that have brought a load balancer in line with its Service and the Nodes, or have tried to.",
            registry=registry,
        )
        self._errors = Counter(
            "service_controller_nodesync_error",
            "Load balancers that did not come to be in line with a change of the Nodes in the first pass after it.",
            registry=registry,
        )
        self._node_syncs = Histogram(
            "service_controller_nodesync_latency_seconds",
            "Time from a change of the Nodes until every load balancer has had a pass.",
            buckets=buckets,
            registry=registry,
        )
        self._hosts = Histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "How long one load balancer's pass after a change of the Nodes took.",
            buckets=buckets,
            registry=registry,
        )
        self._orphans = Gauge(
            "capox_orphaned_floating_ips",
            "Floating IPs that were made for Services which are not there any more.",
            registry=registry,
        )

    def on_orphans(self, floating_ips: int) -> None:
        """So many floating IPs are left over now."""
        self._orphans.set(floating_ips)

    def on_sync(self) -> None:
        """A pass over a load balancer has ended, however it did."""
        self._syncs.inc()

    def on_hosts_update(self, seconds: float, *, is_success: bool) -> None:
        """It was the first one after a change of the Nodes."""
        self._hosts.observe(seconds)
        if not is_success:
            self._errors.inc()

    def on_node_sync(self, seconds: float) -> None:
        """Every load balancer has had its pass after a change of the Nodes."""
        self._node_syncs.observe(seconds)


class CallMetrics:
    """Counts calls of another API, such as the rack's.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "capox_rack_calls",
            "Calls of the rack, by operation and by how they ended.",
            ("operation", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            "capox_rack_call_seconds",
            "How long a call of the rack took, repetitions and waiting included.",
            ("operation",),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

    def on_call(self, operation: str, result: str, seconds: float) -> None:
        """A call has ended: `success`, or the name of its error's class."""
        self._calls.labels(operation, result).inc()
        self._seconds.labels(operation).observe(seconds)
