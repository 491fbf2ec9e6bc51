"""What is counted while Services follow changes of the Nodes."""

from __future__ import annotations

from capox.ccm.node_syncs import NodeSyncs
from capox.kube.metrics import Registry, ServiceMetrics
from capox.kube.workqueue import Request

WEB, SHOP = Request("default", "web"), Request("default", "shop")
HOSTS = "service_controller_update_loadbalancer_host_latency_seconds"
LATENCY = "service_controller_nodesync_latency_seconds"


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        """The time."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


class Counted:
    """The syncs, and what is counted of them."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._registry = Registry()
        self.syncs = NodeSyncs(self.watch, ServiceMetrics(self._registry))

    def run(self, request: Request, seconds: float, *, is_success: bool = True) -> None:
        """Have a pass over a Service that takes a while."""
        began_seconds = self.watch.seconds
        self.watch.seconds += seconds
        self.syncs.ended(request, began_seconds, is_success=is_success)

    def values(self, *samples: str) -> list[float | None]:
        """Some samples."""
        return [self._registry.value(sample) for sample in samples]


def test_all_series_are_there_from_the_start() -> None:
    """A rate over one that is missing would be missing, too."""
    counted = Counted()

    names = ("service_controller_loadbalancer_sync_total", "service_controller_nodesync_error_total")
    assert counted.values(*names, f"{LATENCY}_count", f"{HOSTS}_count") == [0, 0, 0, 0]


def test_a_change_of_the_nodes_is_over_with_the_last_service() -> None:
    """From the change to the end of the last pass; each Service's own part is the time that its pass took."""
    counted = Counted()
    counted.run(WEB, 1)
    counted.syncs.began([WEB, SHOP])
    counted.run(WEB, 2)
    assert counted.values(f"{LATENCY}_count", f"{HOSTS}_sum") == [0, 2]
    counted.run(SHOP, 3, is_success=False)

    assert counted.values(f"{LATENCY}_count", f"{LATENCY}_sum", f"{HOSTS}_count", f"{HOSTS}_sum") == [1, 5, 2, 5]
    assert counted.values("service_controller_loadbalancer_sync_total") == [3]
    assert counted.values("service_controller_nodesync_error_total") == [1]


def test_a_failure_for_another_reason_is_none_of_the_nodes() -> None:
    """Nothing has changed about the Nodes, so it is a pass and no more."""
    counted = Counted()
    counted.run(WEB, 1, is_success=False)

    names = ("service_controller_loadbalancer_sync_total", "service_controller_nodesync_error_total")
    assert counted.values(*names, f"{HOSTS}_count") == [1, 0, 0]


def test_a_pass_that_began_before_the_change_does_not_count() -> None:
    """It may not have seen it; of the changes that come during a sync all have to be followed, as one."""
    counted = Counted()
    began_seconds = counted.watch.seconds
    counted.watch.seconds += 1
    counted.syncs.began([WEB])
    counted.syncs.ended(WEB, began_seconds, is_success=True)
    assert counted.values(f"{LATENCY}_count", f"{HOSTS}_count") == [0, 0]

    counted.watch.seconds += 1
    counted.syncs.began([WEB])
    began_seconds = counted.watch.seconds
    counted.watch.seconds += 1
    counted.syncs.began([WEB])
    counted.syncs.ended(WEB, began_seconds, is_success=True)
    assert counted.values(f"{LATENCY}_count") == [1]
    counted.run(WEB, 1)

    assert counted.values(f"{LATENCY}_count", f"{LATENCY}_sum") == [2, 4]


def test_a_service_that_goes_is_waited_for_no_more() -> None:
    """The change is over when the others have followed, or at once when there are none."""
    counted = Counted()
    counted.syncs.began([])
    counted.syncs.began([WEB, SHOP])
    counted.run(WEB, 1)
    counted.syncs.forget(SHOP)

    assert counted.values(f"{LATENCY}_count", f"{LATENCY}_sum") == [1, 1]
