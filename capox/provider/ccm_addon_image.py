"""The manager's own image, which holds the cloud controller manager as well: read from its Pod, once."""

from __future__ import annotations

from typing import Final

from capox.kube.client import KubeAPI
from capox.kube.errors import NotFound
from capox.provider.ccm_addon_kinds import PODS

__all__ = ["OwnImage"]

CONTAINER: Final = "manager"
"""The container in the provider's Deployment; clusterctl wants it to be called so."""


class OwnImage:
    """The image.

    Args:
        kube: The management cluster.
        pod: Namespace and name of this process's Pod; None outside of one.
        chosen: What is taken instead; empty for the Pod's own.
    """

    def __init__(self, kube: KubeAPI, pod: tuple[str, str] | None, chosen: str = "") -> None:
        self._kube = kube
        self._pod = pod
        self._image = chosen

    async def __call__(self) -> str:
        """Tell it; empty where there is no Pod to read it from.

        Raises:
            KubeError: The Pod could not be read.
        """
        if not self._image and self._pod is not None:
            try:
                pod = await self._kube.get(PODS, *self._pod)
            except NotFound:
                return ""
            containers = pod.part("spec").get("containers") or ()
            self._image = next((each["image"] for each in containers if each.get("name") == CONTAINER), "")
        return self._image
