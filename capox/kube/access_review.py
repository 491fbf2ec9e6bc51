"""Who somebody is and what he may do, asked of the API: for /metrics, and for what we ourselves are allowed (R7).

None of these is an object. They are made, answered in the same breath, and never stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, SecretStr

from capox.kube.client import KubeAPI
from capox.kube.errors import KubeError
from capox.kube.kind import Kind
from capox.kube.objects import NULL_IS_EMPTY_LIST, KubeModel, Resource

__all__ = ["Permission", "Reviewer", "missing_permissions"]

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"

KEPT_SECONDS: Final = 10.0
"""How long an answer is believed; a scraper comes again and again with the same token."""

KEPT_MAX: Final = 64
"""How many answers are kept."""

_Switch: TypeAlias = Annotated[bool, BeforeValidator(bool)]


class _User(KubeModel):
    """Whom a token belongs to."""

    username: str = ""
    """The name."""

    uid: str = ""
    """The id, where there is one."""

    groups: Annotated[tuple[str, ...], NULL_IS_EMPTY_LIST] = ()
    """The groups."""


class _TokenReviewStatus(KubeModel):
    authenticated: _Switch = False
    user: _User = _User()


class TokenReview(Resource):
    """Whether a token is good, and whose it is."""

    status: _TokenReviewStatus = _TokenReviewStatus()
    """The answer."""


class _AccessReviewStatus(KubeModel):
    allowed: _Switch = False


class SubjectAccessReview(Resource):
    """Whether somebody may do something."""

    status: _AccessReviewStatus = _AccessReviewStatus()
    """The answer."""


class SelfSubjectAccessReview(SubjectAccessReview):
    """Whether we ourselves may do something."""


TOKEN_REVIEWS: Final = Kind(TokenReview, _AUTHENTICATION, "v1", "tokenreviews", is_namespaced=False)
ACCESS_REVIEWS: Final = Kind(SubjectAccessReview, _AUTHORIZATION, "v1", "subjectaccessreviews", is_namespaced=False)
SELF_REVIEWS: Final = Kind(
    SelfSubjectAccessReview, _AUTHORIZATION, "v1", "selfsubjectaccessreviews", is_namespaced=False
)


@dataclasses.dataclass(frozen=True, slots=True)
class Permission:
    """One thing that somebody may do.

    Attributes:
        verb: Such as `patch`.
        group: The API group; empty for the core group.
        resource: The plural.
        subresource: The subresource; empty for the object itself.
        namespace: Where; empty for everywhere.
        name: Which object; empty for any.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        what += f".{self.group}" if self.group else ""
        what += f" {self.name}" if self.name else ""
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")


async def missing_permissions(kube: KubeAPI, wanted: Iterable[Permission]) -> tuple[Permission, ...]:
    """Give those that we ourselves do not have.

    Raises:
        KubeError: The API could not be asked.
    """
    # In turn: asked at once, each question would have a connection of its own, and a TLS connection takes half a
    # megabyte. Nobody waits for the answers.
    return tuple([each for each in wanted if not await _is_ours(kube, each)])


async def _is_ours(kube: KubeAPI, permission: Permission) -> bool:
    attributes = {field: value for field, value in dataclasses.asdict(permission).items() if value}
    spec = {"resourceAttributes": attributes}
    return (await kube.create(SELF_REVIEWS, "", _document(SELF_REVIEWS, spec))).status.allowed


class Reviewer:
    """Judges requests for what we serve by the cluster's own rights, as the API does with its own paths.

    Args:
        kube: The API; it has to let us ask (`system:auth-delegator`).
    """

    def __init__(self, kube: KubeAPI) -> None:
        self._kube = kube
        self._kept: dict[tuple[str, str], tuple[int | None, float]] = {}

    async def refusal(self, authorization: str | None, path: str) -> int | None:
        """Judge a GET of a path by its Authorization header; gives the HTTP status that refuses it, None for none."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return 401
        key, now = (hashlib.sha256(token.encode()).hexdigest(), path), asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is not None and now < kept[1]:
            return kept[0]
        try:
            verdict = await self._judge(SecretStr(token.strip()), path)
        except KubeError:
            # Nothing is known; whoever asks may ask again.
            return 503
        self._kept[key] = (verdict, now + KEPT_SECONDS)
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return verdict

    async def _judge(self, token: SecretStr, path: str) -> int | None:
        review = _document(TOKEN_REVIEWS, {"token": token.get_secret_value()})
        found = (await self._kube.create(TOKEN_REVIEWS, "", review)).status
        if not found.authenticated:
            return 401
        spec = {
            "user": found.user.username,
            "uid": found.user.uid,
            "groups": list(found.user.groups),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._kube.create(ACCESS_REVIEWS, "", _document(ACCESS_REVIEWS, spec))
        return None if answer.status.allowed else 403


def _document(kind: Kind[Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
