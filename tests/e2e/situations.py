"""What users see of a situation, kept as text: the pages of docs show what was seen, not what was thought up."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.management import NAMESPACE, Machines

VARIABLE = "E2E_SITUATIONS"
"""The environment variable that names the folder; `make e2e-full SITUATIONS=folder` sets it."""

_KINDS = "cluster,oxidecluster,kubeadmcontrolplane,machinedeployment,machinehealthcheck,machine,oxidemachine"


class Situations:
    """Where situations are kept.

    Args:
        folder: made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, machines: Machines, cluster: str, name: str) -> None:
        """Write what clusterctl and kubectl say of a cluster now into the file `NAME.txt`.

        Args:
            machines: where the cluster is.
            cluster: its name.
            name: of the situation.
        """
        plane = machines.stage.plane
        describe = ("describe", "cluster", cluster, "--namespace", NAMESPACE)
        get = ("get", _KINDS, "--namespace", NAMESPACE)
        nodes = ("get", "nodes", "--output", "wide")
        said = {
            f"clusterctl {' '.join(describe)}": plane.clusterctl(*describe),
            f"kubectl {' '.join(get)}": plane.kubectl(*get),
            f"kubectl --kubeconfig {cluster}.kubeconfig {' '.join(nodes)}": machines.ask_cluster(cluster, *nodes),
        }
        sections = [f"$ {command}\n{text or 'nobody answers'}" for command, text in said.items()]
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{name}.txt").write_text("\n".join(section.rstrip() + "\n" for section in sections))
