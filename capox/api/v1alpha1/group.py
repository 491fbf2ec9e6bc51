"""What all kinds of the version share: group and version, references, and the parts of a status."""

from typing import Annotated, Final, TypeAlias

from pydantic import ConfigDict

from capox.api import limits
from capox.api.limits import Limits
from capox.kube.objects import NULL_IS_EMPTY_LIST, Condition, KubeModel, OptionalText

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "Conditions",
    "Generation",
    "Initialization",
    "SecretReference",
]

GROUP: Final = "infrastructure.cluster.x-k8s.io"
"""The API group of our kinds."""

VERSION: Final = "v1alpha1"
"""The one version of our kinds."""

API_VERSION: Final = f"{GROUP}/{VERSION}"
"""What stands in `apiVersion` of our objects."""


class SecretReference(KubeModel):
    """A reference to a Secret."""

    # Atomic, as in the Go provider's CRD: name and namespace have one owner.
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: Annotated[str, limits.secret_name()]
    """Name of the Secret."""

    namespace: Annotated[OptionalText, limits.namespace_name(optional=True)] = None
    """Namespace of the Secret. Absent: the namespace of the object that refers to it."""


class Initialization(KubeModel):
    """Observations that Cluster API waits for when it brings the object up for the first time."""

    provisioned: bool | None = None
    """Whether the infrastructure is there. It turns true once and stays true."""


Generation: TypeAlias = Annotated[int | None, Limits({"format": "int64", "minimum": 0})]
Conditions: TypeAlias = Annotated[tuple[Condition, ...], NULL_IS_EMPTY_LIST, limits.list_of("map:type", 32)]
