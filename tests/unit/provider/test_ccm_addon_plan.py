"""What the add-on decides: tables, and no cluster."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from capox.provider import ccm_addon_manifests as manifests
from capox.provider import ccm_addon_plan as plan
from capox.provider.ccm_addon_plan import HandsOff, Install, Mode, Remove, Seen, Wait

NOW = datetime.datetime(2026, 9, 1, 12, 0, tzinfo=datetime.UTC)
OURS = {manifests.MANAGED_BY_LABEL: manifests.MANAGED_BY}

NEW = Seen(is_ours=False, has_nodes=True, has_new_node=True)
OLD = Seen(is_ours=False, has_nodes=True)
TAKEN = Seen(is_ours=False, has_nodes=True, has_new_node=True, stranger="Deployment x")
EMPTY = Seen(is_ours=False)
HELD = Seen(is_ours=True)

DECISIONS: list[tuple[Mode, Seen, type[plan.Decision]]] = [
    (Mode.ABSENT, NEW, Install),
    (Mode.ABSENT, HELD, Install),
    (Mode.ABSENT, OLD, HandsOff),
    (Mode.ABSENT, TAKEN, HandsOff),
    (Mode.ABSENT, EMPTY, Wait),
    (Mode.MANAGED, NEW, Install),
    (Mode.MANAGED, OLD, Install),
    (Mode.MANAGED, TAKEN, Install),
    (Mode.MANAGED, EMPTY, Install),
    (Mode.MANAGED, HELD, Install),
    (Mode.UNMANAGED, NEW, Remove),
    (Mode.UNMANAGED, OLD, Remove),
    (Mode.UNMANAGED, HELD, Remove),
]


@pytest.mark.parametrize(("mode", "seen", "decision"), DECISIONS)
def test_modes(mode: Mode, seen: Seen, decision: type[plan.Decision]) -> None:
    """Without a mode only new clusters, and those that are ours; with one as it says."""
    assert isinstance(plan.decide(mode, seen), decision)


@pytest.mark.parametrize(
    ("holder", "renewed", "is_live"),
    [
        ("node-1_uuid", "2026-09-01T11:59:50.123456Z", True),
        ("node-1_uuid", "2026-09-01T12:00:30Z", True),
        ("node-1_uuid", "2026-09-01T11:58:40Z", False),
        ("capox-cloud-controller-manager-x2x4z_1f", "2026-09-01T11:59:59Z", False),
        ("", "2026-09-01T11:59:59Z", False),
        (None, None, False),
        ("node-1_uuid", "yesterday", False),
        ("node-1_uuid", "2026-09-01T11:59:59", False),
    ],
)
def test_holders_of_the_lease(holder: str | None, renewed: str | None, *, is_live: bool) -> None:
    """Alive is who has renewed within the Lease's time, clocks being a minute apart; our own is no stranger."""
    assert bool(plan.live_stranger(holder, renewed, 15, NOW)) is is_live


def test_what_the_apiserver_adds_is_no_drift() -> None:
    """Defaults and other people's labels; what is missing, different or too much in a list is."""
    wanted = {"metadata": {"labels": {"a": "1"}}, "spec": {"list": [{"name": "x"}], "empty": "", "none": []}}
    there = {
        "metadata": {"labels": {"a": "1", "b": "2"}, "uid": "u"},
        "spec": {"list": [{"name": "x", "default": True}]},
        "status": {},
    }
    assert plan.drifted([wanted], [there]) == []
    assert plan.drifted([wanted], [None]) == [wanted]
    for broken in (
        {**there, "spec": {"list": [{"name": "y"}]}},
        {**there, "spec": {"list": [{"name": "x"}, {"name": "y"}]}},
        {**there, "metadata": {"labels": {"a": "2"}}},
        {**there, "spec": None},
    ):
        assert plan.drifted([wanted], [broken]) == [wanted]


def daemon_set(generation: int = 2, **status: int) -> dict[str, Any]:
    """A DaemonSet as the API gives it."""
    counts = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3, "observedGeneration": 2}
    return {"kind": "DaemonSet", "metadata": {"generation": generation}, "status": counts | status}


def deployment(ready: int) -> dict[str, Any]:
    """A Deployment of two as the API gives it."""
    status = {"updatedReplicas": 2, "readyReplicas": ready}
    return {"kind": "Deployment", "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("found", "rollout"),
    [
        (None, "absent"),
        (daemon_set(), "done"),
        (daemon_set(3), "partly"),
        (daemon_set(updatedNumberScheduled=1), "partly"),
        (daemon_set(numberReady=2), "partly"),
        (daemon_set(numberReady=0), "rolling"),
        (daemon_set(desiredNumberScheduled=0, updatedNumberScheduled=0, numberReady=0), "rolling"),
        ({"kind": "DaemonSet", "metadata": {}, "status": "hostile"}, "rolling"),
        (deployment(2), "done"),
        (deployment(1), "partly"),
        ({"kind": "Deployment", "spec": {"replicas": 0}}, "rolling"),
    ],
)
def test_how_far_pods_are(found: dict[str, Any] | None, rollout: str) -> None:
    """Done is only what was seen by its controller, has its new Pods, and all of them ready; none at all is not."""
    assert plan.rollout_of(found) == rollout


def test_hostile_shapes_run_nothing() -> None:
    """Whatever stands where a list or mapping should."""
    shapes: list[dict[str, Any]] = [
        {"template": 1},
        {"template": {"spec": []}},
        {"template": {"spec": {"containers": {"image": 1}}}},
    ]
    for spec in shapes:
        assert plan.runs_another("DaemonSet", {"name": "x", "namespace": "y", "labels": None}, spec) == ""


def test_an_upgrade_is_another_release_of_what_is_ours() -> None:
    """Not what is not there, not what somebody else has installed, not what is the same."""

    def workload(release: str, labels: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"labels": labels, "annotations": {manifests.RELEASE_ANNOTATION: release}}}

    wanted = workload("2", OURS)
    assert plan.is_upgrade(wanted, workload("1", OURS))
    assert plan.is_upgrade(wanted, {"metadata": {"labels": OURS}})
    assert not plan.is_upgrade(wanted, workload("2", OURS))
    assert not plan.is_upgrade(wanted, workload("1", {}))
    assert not plan.is_upgrade(wanted, None)


def test_a_release_is_its_manifests_and_its_image() -> None:
    """A pinned image is no part of the release; a changed manifest would be."""
    assert manifests.release_of("a:1", is_pinned=False) != manifests.release_of("a:2", is_pinned=False)
    assert manifests.release_of("a:1", is_pinned=True) == manifests.release_of("a:2", is_pinned=True)


IMAGES: list[tuple[str, str | None, str | None, str]] = [
    ("reg:5000/a/b:v1", None, None, "reg:5000/a/b:v1"),
    ("reg:5000/a/b:v1", None, "v2", "reg:5000/a/b:v2"),
    ("reg:5000/a/b@sha256:00", None, "v2", "reg:5000/a/b:v2"),
    ("b", None, "v2", "b:v2"),
    ("b:v1", "reg:5000/c", "v2", "reg:5000/c:v2"),
    ("b:v1", "reg:5000/c:v9", None, "reg:5000/c:v9"),
]


@pytest.mark.parametrize(("own", "image", "version", "chosen"), IMAGES)
def test_images(own: str, image: str | None, version: str | None, chosen: str) -> None:
    """A version replaces tag and digest, and no port of a registry."""
    assert manifests.image_of(own, image, version) == chosen


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("extra-arg", "--a", "is none of"),
        ("extra-args", "node-monitor-period", "is not an argument"),
        ("memory-limit", "1 GB", "is not an amount"),
        ("cpu-request", "-1", "is not an amount"),
        ("image-pull-secrets", "a b", "is not the name of a Secret"),
        ("host-aliases", "rack.example.com 192.0.2.1", "is not an address and its names"),
        ("host-aliases", "192.0.2.1", "is not an address and its names"),
        ("no-proxy", "x" * 5000, "at most 4096"),
    ],
)
def test_wrong_knobs_are_named(key: str, value: str, said: str) -> None:
    """Key, value and what is expected."""
    with pytest.raises(manifests.InvalidConfigurationError, match=said) as refusal:
        manifests.parse_knobs({key: value})
    assert key in str(refusal.value)


def test_rendering_leaves_the_package_data_alone() -> None:
    """What one cluster asks for does not reach the next."""
    knobs = manifests.parse_knobs({"extra-args": "--region=north", "memory-limit": "1Gi", "no-proxy": "10.0.0.0/8"})
    installation = manifests.Installation(cluster_id="a", image="i:1", release="r", knobs=knobs)
    before = manifests.packaged()
    rendered = manifests.render(installation)

    assert manifests.packaged() == before
    assert "--region=north" not in str(before)
    assert rendered[-1]["metadata"]["labels"][manifests.CLUSTER_LABEL] == "a"
    assert all(each["metadata"]["labels"][manifests.MANAGED_BY_LABEL] == manifests.MANAGED_BY for each in rendered)


def test_a_changed_environment_makes_new_pods() -> None:
    """The ConfigMap is read when a process starts; a digest of it is on the Pods."""

    def annotations(**knobs: str) -> Any:
        turned = manifests.parse_knobs({key.replace("_", "-"): value for key, value in knobs.items()})
        made = manifests.Installation(cluster_id="a", image="i:1", release="r", knobs=turned)
        return manifests.render(made)[-1]["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations()
    assert annotations() != annotations(https_proxy="http://proxy.example.com:3128")
