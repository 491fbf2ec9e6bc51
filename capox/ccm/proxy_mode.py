"""How kube-proxy works in this cluster, as far as it can be read: its ConfigMap, where kubeadm puts it (V3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import yaml
from pydantic import BeforeValidator, Field

from capox.kube.client import KubeAPI
from capox.kube.errors import KubeError
from capox.kube.kind import Kind
from capox.kube.objects import Resource
from capox.oxide.clock import Clock

__all__ = ["CONFIG_MAPS", "ConfigMap", "ProxyMode", "mode_of"]

KEPT_SECONDS: Final = 600.0
"""How long what was read is believed; kube-proxy has to be restarted for a change."""

_Texts: TypeAlias = Annotated[Mapping[str, str], BeforeValidator(lambda value: {} if value is None else value)]


class ConfigMap(Resource):
    """A ConfigMap."""

    data: _Texts = Field(default_factory=dict)
    """Its texts by key."""


CONFIG_MAPS: Final = Kind(ConfigMap, "", "v1", "configmaps")


class ProxyMode:
    """Reads kube-proxy's mode now and then.

    Args:
        kube: The cluster's API.
        clock: What times go by.
    """

    def __init__(self, kube: KubeAPI, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._mode = ""
        self._until: float | None = None

    async def read(self) -> str:
        """Give the mode; empty when kube-proxy is not there, or not known to us."""
        if self._until is None or self._clock.monotonic() >= self._until:
            try:
                self._mode = mode_of((await self._kube.get(CONFIG_MAPS, "kube-system", "kube-proxy")).data)
            except KubeError:
                # There is none, it may not be read, or not now; nothing depends on it but a warning.
                self._mode = ""
            self._until = self._clock.monotonic() + KEPT_SECONDS
        return self._mode


def mode_of(data: Mapping[str, str]) -> str:
    """The mode that kube-proxy's configuration names; empty for its default."""
    try:
        configuration = yaml.safe_load(data.get("config.conf", ""))
    except yaml.YAMLError:
        return ""
    mode = configuration.get("mode") if isinstance(configuration, dict) else None
    return mode.lower() if isinstance(mode, str) else ""
