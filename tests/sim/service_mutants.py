"""Planted bugs in the service controller: each is a change of its source that the simulation has to catch.

`python -m tests.sim.service_mutants NAME SEEDS`, as in `tests.sim.mutants`.
"""

from __future__ import annotations

import sys

from tests.sim.mutants import Mutant, run_mutant

MUTANTS = (
    Mutant(
        "two services on one port of a node",
        "capox.ccm.placement",
        "if other.owner != seat.owner and other.family == seat.family and _has(other) & seat.ports",
        "if not seat.owner",
        "is on a node where another Service has it",
    ),
    Mutant(
        "places are not kept while an address is on its way",
        "capox.ccm.floating_ip_rack",
        "self._going[each.id] = (node.instance_id, until)",
        "pass",
        "is on a node where another Service has it",
        first_seed=1,
    ),
    Mutant(
        "no finalizer before the first create",
        "capox.ccm.service",
        "if FINALIZER not in self._service.metadata.finalizers:",
        "if not self._service.metadata.name:",
        "has not the finalizer",
    ),
    Mutant(
        "the finalizer goes while something is left",
        "capox.ccm.floating_ip_plan",
        "    for place in match.places:\n",
        "    for place in ():\n",
        "is left, and its Service is gone",
    ),
    Mutant(
        "what the user brought is taken for ours",
        "capox.ccm.floating_ip_match_plan",
        "return Place(wish=wish, floating_ip=found, is_ours=is_adopted, is_adopted=is_adopted)",
        "return Place(wish=wish, floating_ip=found)",
        "is the user's and was",
    ),
    Mutant(
        "the status keeps the old node",
        "capox.ccm.service",
        "        if outcome.entries is not None:\n",
        "        if outcome.entries is not None and not before.ingress:\n",
        "which carries nothing of it",
    ),
    Mutant(
        "a status that is always written",
        "capox.ccm.service_plan",
        "    if wanted == service.status.load_balancer.ingress:\n        return None\n",
        "    wanted = ()\n",
        "a write at rest",
    ),
    Mutant(
        "nothing comes back when a node fails",
        "capox.ccm.placement",
        "return bool(node.closed or node.failing or node.taken & seat.ports) or _gives_way(seat, board)",
        "return _gives_way(seat, board)",
        "still not",
    ),
)


if __name__ == "__main__":
    sys.exit(run_mutant(MUTANTS, "tests.sim.service_stories:life_of_services", sys.argv[1], int(sys.argv[2])))
