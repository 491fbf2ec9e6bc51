"""The templates that Cluster API makes OxideClusters and OxideMachines from."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from capox.api import limits
from capox.api.limits import CelRule, Limits
from capox.api.quantity import Quantity
from capox.api.v1alpha1.cluster import OxideClusterSpec
from capox.api.v1alpha1.machine import ONE_IMAGE, OxideMachineSpec
from capox.kube.objects import KubeModel, Resource

__all__ = [
    "NodeInfo",
    "OxideClusterTemplate",
    "OxideClusterTemplateResource",
    "OxideClusterTemplateSpec",
    "OxideMachineTemplate",
    "OxideMachineTemplateResource",
    "OxideMachineTemplateSpec",
    "OxideMachineTemplateStatus",
    "TemplateMetadata",
]

_NO_PROVIDER_ID_IN_TEMPLATE: Final = Limits(
    rules=(
        CelRule(
            "!has(self.providerID) || self.providerID == ''",
            '"a template has no provider ID, every machine made from it would claim the instance of \'"'
            ' + self.providerID + "\'; leave the field out"',
            field_path=".providerID",
        ),
    ),
    in_words="without `providerID`",
)


_MACHINE_TEMPLATE_RULES: Final = Limits(
    rules=(*_NO_PROVIDER_ID_IN_TEMPLATE.rules, ONE_IMAGE), in_words="without `providerID`; either `imageID` or `image`"
)


class TemplateMetadata(KubeModel):
    """Labels and annotations for the objects that are made from a template."""

    labels: Annotated[Mapping[str, Annotated[str, Limits({"maxLength": 63})]], Limits({"maxProperties": 256})] = Field(
        default_factory=dict
    )
    """Labels by key."""

    annotations: Annotated[
        Mapping[str, Annotated[str, Limits({"maxLength": 262144})]], Limits({"maxProperties": 256})
    ] = Field(default_factory=dict)
    """Annotations by key."""


class OxideClusterTemplateResource(KubeModel):
    """The OxideCluster that a template makes."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the OxideClusters made from this template."""

    spec: OxideClusterSpec
    """Spec of the OxideClusters made from this template."""


class OxideClusterTemplateSpec(KubeModel):
    """What an OxideClusterTemplate holds."""

    template: OxideClusterTemplateResource
    """The OxideCluster that is made."""


class OxideClusterTemplate(Resource):
    """A template for OxideClusters, for use in a ClusterClass."""

    spec: OxideClusterTemplateSpec
    """What the template holds."""


class OxideMachineTemplateResource(KubeModel):
    """The OxideMachine that a template makes."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the OxideMachines made from this template."""

    spec: Annotated[OxideMachineSpec, _MACHINE_TEMPLATE_RULES]
    """Spec of the OxideMachines made from this template."""


class OxideMachineTemplateSpec(KubeModel):
    """What an OxideMachineTemplate holds."""

    template: OxideMachineTemplateResource
    """The OxideMachine that is made."""


class NodeInfo(KubeModel):
    """What kind of Node a machine becomes."""

    architecture: Annotated[str, Limits({"enum": ["amd64"]})]
    """CPU architecture."""

    operating_system: Annotated[str, Limits({"enum": ["linux"]})]
    """Operating system."""


class OxideMachineTemplateStatus(KubeModel):
    """What a machine made from the template offers, for the autoscaler to scale from zero (C-T-7)."""

    # cpu, memory and ephemeral-storage.
    capacity: Annotated[
        Mapping[str, Annotated[Quantity, limits.quantity_of_resource()]], Limits({"maxProperties": 16})
    ] = Field(default_factory=dict)
    """Amounts by resource: cpu, memory, ephemeral-storage."""

    node_info: NodeInfo | None = None
    """What kind of Node it becomes."""


class OxideMachineTemplate(Resource):
    """A template for OxideMachines, for use in a control plane, a MachineDeployment or a ClusterClass.

    To change machines, make a new template and refer to it: machines that exist keep what they were made from.
    """

    spec: OxideMachineTemplateSpec
    """What the template holds."""

    status: OxideMachineTemplateStatus = OxideMachineTemplateStatus()
    """What a machine made from the template offers."""
