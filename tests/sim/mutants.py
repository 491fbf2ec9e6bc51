"""Planted bugs: each is a change of the provider's source that the simulation has to catch.

`python -m tests.sim.mutants NAME SEEDS` runs stories on a mutated provider in a process of its own and prints what was
caught. The source in the tree stays as it is: the change is made while the module is loaded.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import structlog

from tests.plain_logs import PROCESSORS

SOURCE = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug.

    Attributes:
        name: What the bug is, in a few words.
        module: The module that has it.
        right: The source text that is right; it has to occur exactly once.
        wrong: What stands there instead.
        caught_by: Words of the complaint that shows that it was caught for what it is.
        first_seed: The first seed to try, for a bug that few stories meet.
    """

    name: str
    module: str
    right: str
    wrong: str
    caught_by: str
    first_seed: int = 0


MUTANTS = (
    Mutant(
        "no finalizer before the first write",
        "capox.provider.machine_pass",
        "scope.machine = await gate.add_finalizer(scope.deps.kube, OXIDE_MACHINES, scope.machine, MACHINE_FINALIZER)",
        "pass",
        "has not our finalizer",
    ),
    Mutant(
        "an instance of the right name is taken for ours",
        "capox.provider.machine_plan",
        'return None if is_recorded and instance.name == identity.name else "it has no owner mark of capox"',
        "return None",
        "has recorded an instance that never was",
    ),
    Mutant(
        "disks are not recorded",
        "capox.provider.machine_rack",
        "if disk is not None and disk.instance_id == instance_id\n",
        "if disk is not None and disk.instance_id != instance_id\n",
        "is left on the rack",
    ),
    Mutant(
        "disks are recorded while they are being made",
        "capox.provider.machine_plan",
        "seen.recorded_disks is None and instance.run_state != InstanceState.CREATING",
        "seen.recorded_disks is None",
        "is left on the rack",
        first_seed=64,
    ),
    Mutant(
        "the finalizer goes before the disks",
        "capox.provider.machine_plan",
        "return _plan_disks(seen.recorded_disks or ())",
        "return Finished()",
        "is left on the rack",
    ),
    Mutant(
        "a name that is not in the list counts as gone at once",
        "capox.provider.machine_rack",
        "reading.began.seconds - last_possible >= CREATE_SETTLES_SECONDS",
        "True",
        "is left on the rack",
    ),
    Mutant(
        "pause is not looked at",
        "capox.provider.gate",
        "    if cluster is not None and cluster.spec.paused:\n",
        "    if cluster is not None and cluster is None:\n",
        "was called while the cluster is paused",
    ),
    Mutant(
        "user data is cut",
        "capox.provider.bootstrap",
        "return UserData(SecretBytes(raw))",
        "return UserData(SecretBytes(raw[:-1]))",
        "has other user data",
    ),
    Mutant(
        "a joining machine may get the endpoint",
        "capox.provider.endpoint_holder",
        "return candidate.has_node and candidate.is_api_server_healthy is not False",
        "return True",
        "whose apiserver was never alive",
    ),
    Mutant(
        "the endpoint is released before the machines",
        "capox.provider.cluster_pass",
        "        return bool(machines)\n",
        "        return False\n",
        "is gone before the machine",
    ),
    Mutant(
        "the floating IP is only detached",
        "capox.provider.cluster_plan",
        "return DeleteFloatingIp(floating_ip) if own else Finished()",
        "return Finished()",
        "is left on the rack",
    ),
    Mutant(
        "the credentials are not kept",
        "capox.provider.secret_guard",
        "    if has_finalizer and has_label:\n",
        "    if has_finalizer or not has_label:\n",
        "the credentials are gone before the",
    ),
    Mutant(
        "the credentials are kept for ever",
        "capox.provider.secret_guard",
        "left = [other for other in secret.metadata.finalizers if other != CREDENTIALS_FINALIZER]",
        "left = [*secret.metadata.finalizers]",
        "still not: all objects are gone",
    ),
    Mutant(
        "others' firewall rules are not written back",
        "capox.provider.firewall_plan",
        "return WriteRules((*(rule.as_update() for rule in others), *desired))",
        "return WriteRules(tuple(desired))",
        "somebody else's firewall rules were",
        first_seed=1,
    ),
    Mutant(
        "firewall rules stay when their cluster goes",
        "capox.provider.cluster_firewall",
        "            step, _ = await _write(deps, project, cluster, vpc, None)\n",
        "            step = plan.Steady()\n",
        "is there, and no OxideCluster that would take it away",
        first_seed=1,
    ),
    Mutant(
        "groups stay when their cluster goes",
        "capox.provider.group_plan",
        "return mark is not None and is_made_for(mark, cluster_mark)",
        "return mark is not None and not is_made_for(mark, cluster_mark)",
        "is left on the rack, and its OxideCluster is gone",
    ),
    Mutant(
        "workers join the control plane's group",
        "capox.provider.group_plan",
        'f"md-{deployment}" if deployment else _WORKERS',
        "_CONTROL_PLANE",
        "is in the groups ['control-plane'], not in one of md-workers",
    ),
    Mutant(
        "any machine is deleted that is not wanted to be there",
        "capox.provider.machine_pass",
        "if self._scope.machine.metadata.is_being_deleted:\n                await self._converge_absent",
        "if self._scope.machine.spec.provider_id:\n                await self._converge_absent",
        "nobody asked for that",
    ),
    Mutant(
        "the wrong instance is recorded",
        "capox.provider.machine_creation",
        "await scope.record_instance(instance.id)",
        "await scope.record_instance(type(instance.id)(int=instance.id.int ^ 1))",
        "has recorded an instance that never was",
    ),
    Mutant(
        "a status that ticks",
        "capox.kube.conditions",
        "if before is None or before.status != finding.status else before.last_transition_time",
        "if True else before.last_transition_time",
        "a write at rest",
    ),
    Mutant(
        "user data in the description",
        "capox.provider.machine_instance",
        "description = format_mark(mark)",
        'description = format_mark(owner_mark(machine, "")) + " " + user_data.data.get_secret_value().decode()[:200]',
        "a secret is told",
    ),
)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with its bug."""

    def __init__(self, mutant: Mutant) -> None:
        path = SOURCE / Path(*mutant.module.split(".")).with_suffix(".py")
        super().__init__(mutant.module, str(path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the changed source, past any cache."""
        source = self.get_data(self.path).decode()
        count = source.count(self._mutant.right)
        if count != 1:
            raise AssertionError(f"{self._mutant.name}: the right text occurs {count} times in {fullname}")
        return compile(source.replace(self._mutant.right, self._mutant.wrong), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Give the changed module its loader."""
        del path, target
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._mutant))


def run_mutant(mutants: Sequence[Mutant], story: str, name: str, seeds: int) -> int:
    """Run stories with a bug until one catches it; standard output has only that, standard error the log.

    Args:
        mutants: All bugs.
        story: Module and name of the story, such as `tests.sim.stories:life_of_a_cluster`.
        name: Which bug.
        seeds: How many seeds are tried.
    """
    structlog.configure(processors=PROCESSORS, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    (mutant,) = (each for each in mutants if each.name == name)
    sys.meta_path.insert(0, _Finder(mutant))
    from tests.sim.loop import simulate  # noqa: PLC0415 -- only now, so that the bug is loaded
    from tests.sim.world import Weather  # noqa: PLC0415

    module, _, function = story.partition(":")
    live = getattr(importlib.import_module(module), function)
    for seed in range(mutant.first_seed, mutant.first_seed + seeds):
        weather = Weather(kube=0.1, rack=0.2) if seed else Weather()
        try:
            simulate(lambda: live(seed, weather=weather, crashes=seed % 3), seed=seed)  # noqa: B023 -- run at once
        except Exception as error:  # noqa: BLE001 -- whatever it is, it was caught
            sys.stdout.write(f"seed {seed}: {type(error).__name__}: {error}\n")
            return 0
    sys.stdout.write(f"not caught by {seeds} seeds from {mutant.first_seed} on\n")
    return 1


if __name__ == "__main__":
    sys.exit(run_mutant(MUTANTS, "tests.sim.stories:life_of_a_cluster", sys.argv[1], int(sys.argv[2])))
