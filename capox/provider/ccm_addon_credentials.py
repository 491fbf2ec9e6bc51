"""The credentials that a cluster's cloud controller manager gets: whose they are, and whether they may go there.

Whoever reads Secrets in a workload cluster has them. So they are best those of a user with one role on one project;
those that could do more than a cluster's users should are not put there, and those of another namespace only where
their owner says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

from capox.api.v1alpha1 import OxideCluster, Reason
from capox.kube.client import KubeAPI
from capox.kube.errors import NotFound
from capox.kube.kind import SECRETS
from capox.kube.objects import Secret
from capox.oxide import errors as oxide
from capox.oxide.clock import Clock
from capox.provider.credentials import Credentials, CredentialsError, parse_credentials
from capox.provider.racks import Racks
from capox.provider.trouble import of_rack_error

__all__ = [
    "ALLOWED_NAMESPACES",
    "CredentialsProbe",
    "CredentialsRefusedError",
    "Source",
    "check_shared",
    "read_source",
]

ALLOWED_NAMESPACES: Final = "infrastructure.cluster.x-k8s.io/allowed-namespaces"
"""The annotation of a Secret with the namespaces, divided by commas, whose clusters may get a copy; `*` is all."""

PROBE_KEPT_SECONDS: Final = 600.0
"""How long it is believed what the rack said of a token."""

_PROBES_MAX: Final = 10_000


class CredentialsRefusedError(Exception):
    """The credentials do not go into the cluster.

    Attributes:
        reason: The condition's reason.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where a cluster's credentials come from.

    Attributes:
        secret: The Secret.
        credentials: What it holds.
        is_shared: Whether it is the cluster's own.
    """

    secret: Secret
    credentials: Credentials
    is_shared: bool

    def values(self, project: str) -> dict[str, str]:
        """What the Secret in the cluster holds."""
        credentials = self.credentials
        values = {
            "oxide-host": credentials.host,
            "oxide-token": credentials.token.get_secret_value(),
            "oxide-project": project,
        }
        return values if credentials.ca is None else values | {"oxide-ca": credentials.ca}


async def read_source(kube: KubeAPI, cluster: OxideCluster) -> Source:
    """Read the Secret from which a cluster's cloud controller manager gets its credentials.

    Raises:
        CredentialsRefusedError: It is not there, is incomplete, or is another namespace's and does not allow it.
        KubeError: It could not be read.
    """
    namespace, spec = cluster.metadata.namespace, cluster.spec
    own = spec.cloud_controller_manager.credentials_ref if spec.cloud_controller_manager is not None else None
    if own is not None:
        where, name = namespace, own.name
    else:
        where, name = spec.credentials_ref.namespace or namespace, spec.credentials_ref.name
    try:
        secret = await kube.get(SECRETS, where, name)
        if where != namespace:
            _check_allowed(secret, namespace)
        return Source(secret, parse_credentials(secret), is_shared=own is None)
    except NotFound:
        message = f"Secret {where}/{name} does not exist; make it with keys oxide-host and oxide-token"
        raise CredentialsRefusedError(Reason.CREDENTIALS_INVALID, message) from None
    except CredentialsError as error:
        raise CredentialsRefusedError(Reason.CREDENTIALS_INVALID, str(error)) from error


def check_shared(source: Source, *, may_share: bool) -> None:
    """Check that the cluster's own credentials may be given to its cloud controller manager.

    Raises:
        CredentialsRefusedError: They may not.
    """
    if source.is_shared and not may_share:
        raise CredentialsRefusedError(
            Reason.SHARED_CREDENTIALS,
            "the provider runs with --ccm-shared-credentials=refuse, so the cluster's own credentials do not go into "
            "it; name a Secret with others in spec.cloudControllerManager.credentialsRef",
        )


def _check_allowed(secret: Secret, namespace: str) -> None:
    allowed = {each.strip() for each in secret.metadata.annotations.get(ALLOWED_NAMESPACES, "").split(",")}
    if not allowed & {namespace, "*"}:
        name = f"{secret.metadata.namespace}/{secret.metadata.name}"
        raise CredentialsRefusedError(
            Reason.CREDENTIALS_NOT_ALLOWED,
            f"Secret {name} does not go into a cluster of namespace {namespace}: name a Secret of that namespace in "
            f"spec.cloudControllerManager.credentialsRef, or set the annotation {ALLOWED_NAMESPACES}={namespace} on it",
        )


class CredentialsProbe:
    """Asks the rack what a token may do, once in a while.

    Args:
        racks: The clients.
        clock: The time that answers age by.
    """

    def __init__(self, racks: Racks, clock: Clock) -> None:
        self._racks = racks
        self._clock = clock
        self._passed: dict[str, float] = {}

    async def check(self, credentials: Credentials, project: str) -> None:
        """Check that credentials work, and may do no more than what is bearable within a cluster.

        Raises:
            CredentialsRefusedError: The rack refuses them, or they may do too much.
            OxideError: The rack could not be asked.
        """
        key = _digest(credentials, project)
        asked = self._passed.get(key)
        if asked is not None and self._clock.monotonic() - asked < PROBE_KEPT_SECONDS:
            return
        try:
            client = self._racks.project(credentials, project).client
            user = await client.current_user_view()
            await client.project_view(project)
        except ValueError as error:
            raise CredentialsRefusedError(Reason.CREDENTIALS_INVALID, str(error)) from error
        except (oxide.Unauthorized, oxide.Forbidden, oxide.ObjectNotFound) as error:
            message = of_rack_error(error).message
            if isinstance(error, oxide.ObjectNotFound):
                message = f"the project {project} is not there, or not visible with these credentials"
            raise CredentialsRefusedError(Reason.CREDENTIALS_INVALID, message) from error
        powers = [name for name, has in (("silo_admin", user.silo_admin), ("fleet_viewer", user.fleet_viewer)) if has]
        if powers:
            raise CredentialsRefusedError(
                Reason.CREDENTIALS_TOO_POWERFUL,
                f"the token's user {user.display_name} is {' and '.join(powers)}, and everybody who reads Secrets in "
                "the cluster would be, too; use a token of a user with the role limited_collaborator on the one "
                "project, or spec.cloudControllerManager.placement ManagementCluster",
            )
        if len(self._passed) >= _PROBES_MAX:
            self._passed.clear()
        self._passed[key] = self._clock.monotonic()


def _digest(credentials: Credentials, project: str) -> str:
    parts = (credentials.host, credentials.token.get_secret_value(), credentials.ca or "", project)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
