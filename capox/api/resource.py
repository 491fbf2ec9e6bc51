"""The kinds that the CRDs serve: their models, their names in URLs, and their columns of `kubectl get` (C-ALL-7)."""

from dataclasses import dataclass
from typing import Final

from capox.api.capi import CLUSTER_NAME_LABEL
from capox.api.reasons import ConditionType
from capox.api.v1alpha1 import OxideCluster, OxideClusterTemplate, OxideMachine, OxideMachineTemplate
from capox.kube.objects import Resource

__all__ = ["CUSTOM_RESOURCES", "CustomResource", "PrinterColumn"]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of `kubectl get`."""

    name: str
    """The column's head."""

    json_path: str
    """Where the value is."""

    type: str = "string"
    """OpenAPI type of the value."""

    is_wide: bool = False
    """Whether the column shows only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A kind that is served by a CRD."""

    model: type[Resource]
    """The kind's model; its class name is the kind."""

    plural: str
    """The kind's name in URLs; Cluster API computes it and must find the same (C-ALL-2)."""

    columns: tuple[PrinterColumn, ...] = ()
    """Columns of `kubectl get`; none gives Kubernetes' own, name and age."""

    has_status: bool = True
    """Whether the status is a subresource with its own rights and its own writes (C-ALL-5)."""


def _condition_column(name: str, condition_type: ConditionType, key: str, *, is_wide: bool = False) -> PrinterColumn:
    return PrinterColumn(name, f".status.conditions[?(@.type=='{condition_type}')].{key}", is_wide=is_wide)


_CLUSTER_COLUMN = PrinterColumn("Cluster", ".metadata.labels." + CLUSTER_NAME_LABEL.replace(".", "\\."))
_AGE_COLUMN = PrinterColumn("Age", ".metadata.creationTimestamp", type="date")

CUSTOM_RESOURCES: Final = (
    CustomResource(
        OxideCluster,
        "oxideclusters",
        columns=(
            _CLUSTER_COLUMN,
            PrinterColumn("Endpoint", ".spec.controlPlaneEndpoint.host"),
            _condition_column("Ready", ConditionType.READY, "status"),
            _condition_column("Attachment", ConditionType.FLOATING_IP_ATTACHED, "reason"),
            _AGE_COLUMN,
        ),
    ),
    CustomResource(OxideClusterTemplate, "oxideclustertemplates", has_status=False),
    CustomResource(
        OxideMachine,
        "oxidemachines",
        columns=(
            _CLUSTER_COLUMN,
            PrinterColumn("ProviderID", ".spec.providerID"),
            _condition_column("Ready", ConditionType.READY, "status"),
            _condition_column("Reason", ConditionType.READY, "reason"),
            _AGE_COLUMN,
            PrinterColumn("Machine", ".metadata.ownerReferences[?(@.kind=='Machine')].name", is_wide=True),
            PrinterColumn("Address", ".status.addresses[?(@.type=='InternalIP')].address", is_wide=True),
            _condition_column("Paused", ConditionType.PAUSED, "status", is_wide=True),
        ),
    ),
    CustomResource(OxideMachineTemplate, "oxidemachinetemplates"),
)
"""Every kind that a CRD serves, with its columns of `kubectl get`."""
