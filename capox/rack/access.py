"""Who may see and who may change what (semantics 1.1).

A role on a silo holds for all of its projects. Each role includes those below it: admin, collaborator,
limited_collaborator, viewer.
A limited collaborator manages compute (instances, disks, addresses, images) but neither VPCs, subnets nor firewall
rules.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from typing import Any, Literal

from capox.rack import errors, records
from capox.rack.state import Rack

Need = Literal["read", "compute", "network", "admin"]

_RANK: dict[records.Role | None, int] = {None: 0, "viewer": 1, "limited_collaborator": 2, "collaborator": 3, "admin": 4}
_NEEDED: dict[Need, int] = {"read": 1, "compute": 2, "network": 3, "admin": 4}

_SCHEME = "Bearer "
_PREFIX = "oxide-token-"


@dataclasses.dataclass(frozen=True)
class Actor:
    """On whose behalf a request is made."""

    user: records.User
    silo: records.Silo

    def rank_on(self, project: records.Project) -> int:
        """How much this user may do in a project of the silo."""
        return max(_RANK[self.user.role], _RANK[project.roles.get(self.user.id)])

    def may(self, need: Need, project: records.Project) -> bool:
        """Whether the user may do this in a project."""
        return project.silo == self.silo.id and self.rank_on(project) >= _NEEDED[need]

    def require(self, need: Need, project: records.Project) -> None:
        """Refuse what the user may see but not do.

        Raises:
            Refusal: 403.
        """
        if not self.may(need, project):
            raise errors.forbidden()

    def may_on_silo(self, need: Need) -> bool:
        """Whether the user may do this to what belongs to the silo itself."""
        return _RANK[self.user.role] >= _NEEDED[need]

    def require_on_silo(self, need: Need) -> None:
        """Refuse what needs a role on the silo itself.

        Raises:
            Refusal: 403.
        """
        if not self.may_on_silo(need):
            raise errors.forbidden()


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NO_ONE: dict[str, Any] = {
    "id": "",
    "name": "nobody",
    "description": "",
    "time_created": _EPOCH,
    "time_modified": _EPOCH,
}

# Who calls an operation that asks for no credentials: without a role and without a silo that has anything.
NOBODY = Actor(
    records.User(**_NO_ONE, silo="", role=None, fleet_viewer=False),
    records.Silo(**_NO_ONE, quota_cpus=0, quota_memory_bytes=0, quota_storage_bytes=0),
)


def hash_token(token: str) -> str:
    """The form in which the rack keeps a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def authenticate(rack: Rack, authorization: str | None) -> Actor:
    """The user behind an `Authorization` header.

    Raises:
        Refusal: 401, whatever is wrong with the credentials.
    """
    if authorization is None or not authorization.startswith(_SCHEME + _PREFIX):
        raise errors.unauthorized()
    token = rack.tokens.get(hash_token(authorization.removeprefix(_SCHEME)))
    if token is None or (token.time_expires is not None and token.time_expires <= rack.now()):
        raise errors.unauthorized()
    user = rack.users.by_id(token.user)
    silo = rack.silos.by_id(user.silo) if user is not None else None
    if user is None or silo is None:
        raise errors.unauthorized()
    return Actor(user, silo)
