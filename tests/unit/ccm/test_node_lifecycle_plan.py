"""Evidence in, one act out (L1 to L8)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from capox.ccm.node_lifecycle_plan import Act, Evidence, decide, is_mass

PROVEN = Evidence(
    is_ready=False,
    proofs=2,
    is_proven_now=True,
    absent_seconds=60.0,
    lease_still_seconds=60.0,
    has_anchor=True,
)
"""Everything that a deletion needs."""


def test_the_whole_proof_deletes() -> None:
    """L1: with everything at once the Node goes."""
    assert decide(PROVEN).act is Act.DELETE


@pytest.mark.parametrize(
    ("missing", "act"),
    [
        ({"is_ready": True}, Act.KEEP),
        ({"is_ready": True, "has_shutdown_taint": True}, Act.UNTAINT),
        ({"is_ours": False}, Act.KEEP),
        ({"is_initialised": False}, Act.KEEP),
        ({"proofs": 0, "is_proven_now": False}, Act.PROVE),
        ({"proofs": 1}, Act.KEEP),
        ({"is_proven_now": False}, Act.PROVE),
        ({"has_anchor": False}, Act.HOLD),
        ({"lease_still_seconds": 40.0}, Act.KEEP),
        ({"absent_seconds": 29.0}, Act.KEEP),
        ({"is_mass": True}, Act.HOLD),
        ({"is_mass": True, "absent_seconds": 601.0}, Act.DELETE),
        ({"is_control_plane": True}, Act.KEEP),
        ({"is_control_plane": True, "absent_seconds": 301.0}, Act.DELETE),
        ({"run_state": "running"}, Act.KEEP),
        ({"run_state": "destroyed"}, Act.DELETE),
    ],
    ids=str,
)
def test_each_missing_part_keeps_the_node(missing: dict[str, Any], act: Act) -> None:
    """L1, L2, L5: one part less, and the Node stays."""
    assert decide(dataclasses.replace(PROVEN, **missing)).act is act


@pytest.mark.parametrize(
    ("state", "act"),
    [
        ("stopped", Act.TAINT),
        *((state, Act.KEEP) for state in ("failed", "stopping", "starting", "creating", "rebooting")),
        *((state, Act.KEEP) for state in ("migrating", "repairing", "running", "a-newer-word")),
    ],
)
def test_only_a_stopped_instance_taints(state: str, act: Act) -> None:
    """L6: every other state is an instance that exists; a taint that is there already is not written again."""
    silent = Evidence(is_ready=False, run_state=state)

    assert decide(silent).act is act
    assert decide(dataclasses.replace(silent, has_shutdown_taint=True)).act is Act.KEEP


def test_nothing_deletes_without_each_condition() -> None:
    """L1: over all combinations, a deletion has every single condition."""
    switches = ("is_ready", "is_ours", "is_initialised", "is_proven_now", "has_anchor", "is_mass", "is_control_plane")
    numbers = {"proofs": (0, 1, 2), "absent_seconds": (0.0, 31.0, 301.0, 601.0), "lease_still_seconds": (0.0, 41.0)}
    deleted = 0
    for bits in itertools.product((False, True), repeat=len(switches)):
        for values in itertools.product(*numbers.values()):
            for state in (None, "running", "stopped"):
                given: dict[str, Any] = dict(zip(switches, bits, strict=True)) | dict(zip(numbers, values, strict=True))
                evidence = Evidence(run_state=state, **given)
                if decide(evidence).act is not Act.DELETE:
                    continue
                deleted += 1
                assert not evidence.is_ready
                assert evidence.run_state is None
                assert all((evidence.is_ours, evidence.is_initialised, evidence.is_proven_now, evidence.has_anchor))
                assert evidence.proofs == 2
                assert evidence.lease_still_seconds > 40
                least = 600 if evidence.is_mass else 300 if evidence.is_control_plane else 30
                assert evidence.absent_seconds > least
    assert deleted == 3 + 2 + 1 + 1


@pytest.mark.parametrize(
    ("absent", "nodes", "expected"),
    [(1, 3, False), (2, 5, True), (1, 2, True), (3, 9, False), (4, 9, True), (1, 1, True)],
)
def test_more_than_a_third_is_many(absent: int, nodes: int, *, expected: bool) -> None:
    """L2: exactly a third is not yet many."""
    assert is_mass(absent, nodes) is expected
