"""OxideMachineTemplate: what a machine made from it would offer, for the autoscaler to scale from zero (C-T-7).

The capacity follows from the template alone: no owner, no rack, no credentials, so a template that nobody owns yet has
it too (CAPH#790). Nothing else of a template is ever written: no finalizer, no annotation (C-T-6, C-T-8).
"""

from __future__ import annotations

from typing import Final

from capox.api.quantity import GIB_BYTES, Quantity
from capox.api.v1alpha1 import NodeInfo, OxideMachineSpec, OxideMachineTemplate, OxideMachineTemplateStatus
from capox.kube.errors import Conflict
from capox.kube.workqueue import DONE, Request, Result
from capox.provider import gate
from capox.provider.deps import Deps
from capox.provider.kinds import OXIDE_MACHINE_TEMPLATES
from capox.provider.status import status_patch

__all__ = ["CONTROLLER", "TemplateReconciler", "template_status"]

CONTROLLER: Final = "oxidemachinetemplate"
"""The controller's name in metrics, logs and flags."""


class TemplateReconciler:
    """The reconciler of OxideMachineTemplates.

    Args:
        deps: What it works with.
    """

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def reconcile(self, request: Request) -> Result:
        """One pass over one template.

        Raises:
            KubeError: The template could not be read or written.
        """
        kube = self._deps.kube
        template = await gate.find(kube, OXIDE_MACHINE_TEMPLATES, request.namespace, request.name)
        if template is None or template.metadata.is_being_deleted:
            return DONE
        if not gate.is_watched(template, self._deps.watch_filter) or await self._is_paused(template):
            return DONE
        patch = status_patch(template.status, template_status(template.spec.template.spec))
        if patch is None:
            return DONE
        body = {"metadata": {"resourceVersion": template.metadata.resource_version}, "status": patch}
        try:
            await kube.patch(OXIDE_MACHINE_TEMPLATES, request.namespace, request.name, body, subresource="status")
        except Conflict:
            return Result(requeue_after_seconds=1.0 + self._deps.randomness.random())
        return DONE

    async def _is_paused(self, template: OxideMachineTemplate) -> bool:
        """Whether the template, or the Cluster that it belongs to, is paused (B37)."""
        cluster = await gate.cluster_by_label(self._deps.kube, template)
        return bool(gate.pause_causes(template, cluster))


def template_status(spec: OxideMachineSpec) -> OxideMachineTemplateStatus:
    """What a machine of this spec offers: what it asks for, rounded up as the instance will be."""
    return OxideMachineTemplateStatus(
        capacity={
            "cpu": Quantity(str(spec.n_cpus)),
            "memory": Quantity(_gibibytes(spec.memory)),
            "ephemeral-storage": Quantity(_gibibytes(spec.disk_size)),
        },
        node_info=NodeInfo(architecture="amd64", operating_system="linux"),
    )


def _gibibytes(quantity: Quantity) -> str:
    return f"{quantity.to_bytes(multiple_bytes=GIB_BYTES) // GIB_BYTES}Gi"
