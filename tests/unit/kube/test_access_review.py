"""Who asks, and what we may do: asked of the API, and believed for a moment only (5.1, R7)."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from capox.kube.access_review import Permission, Reviewer, missing_permissions
from tests.unit.kube.api_server import Arrived, FakeAPIServer, serving, status


class Judge:
    """Answers reviews.

    Args:
        server: Where they come in.

    Attributes:
        users: Names by token.
        allowed: Who may read /metrics.
    """

    def __init__(self, server: FakeAPIServer) -> None:
        self.users = {"good": "prometheus", "poor": "somebody"}
        self.allowed = {"prometheus"}
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one review."""
        document: dict[str, Any] = json.loads(await request.read())
        spec = document["spec"]
        match document["kind"]:
            case "TokenReview":
                name = self.users.get(spec["token"])
                document["status"] = (
                    {"authenticated": True, "user": {"username": name, "groups": ["g"]}} if name else {}
                )
            case "SubjectAccessReview":
                wanted = {"path": "/metrics", "verb": "get"}
                is_right = spec["user"] in self.allowed and spec["nonResourceAttributes"] == wanted
                document["status"] = {"allowed": is_right and spec["groups"] == ["g"]}
            case _:
                document["status"] = {"allowed": spec["resourceAttributes"]["verb"] != "delete"}
        document["metadata"] = {"creationTimestamp": None}
        return web.json_response(document, status=201)


def kinds(arrived: list[Arrived]) -> list[str]:
    """What was asked."""
    return [json.loads(each.body)["kind"] for each in arrived]


async def test_whoever_may_read_is_let_in() -> None:
    """A good token with the right passes; one without is 403, a bad one or none 401."""
    async with serving() as server, server.client() as kube:
        Judge(server)
        reviewer = Reviewer(kube)
        headers = ("Bearer good", "bearer  good", "Bearer poor", "Bearer bad", "Basic good", "Bearer ", None)
        found = [await reviewer.refusal(header, "/metrics") for header in headers]

    assert found == [None, None, 403, 401, 401, 401, 401]


async def test_an_answer_is_believed_for_a_moment() -> None:
    """The same token is not asked about at each scrape; an API that is away is no answer and is asked again."""
    async with serving() as server, server.client() as kube:
        judge = Judge(server)
        reviewer = Reviewer(kube)
        server.answer = status(503, "ServiceUnavailable")
        assert await reviewer.refusal("Bearer good", "/metrics") == 503
        server.answer = judge.answer
        server.arrived.clear()
        for _ in range(5):
            assert await reviewer.refusal("Bearer good", "/metrics") is None

        assert kinds(server.arrived) == ["TokenReview", "SubjectAccessReview"]
        assert server.arrived[0].path.startswith("/apis/authentication.k8s.io/v1/tokenreviews")


async def test_missing_permissions_are_named() -> None:
    """R7: in words that an administrator can put into a role."""
    wanted = [
        Permission("patch", "", "nodes", "status"),
        Permission("delete", "", "nodes"),
        Permission("get", "coordination.k8s.io", "leases", namespace="kube-system", name="ccm"),
    ]
    async with serving() as server, server.client() as kube:
        Judge(server)
        missing = await missing_permissions(kube, wanted)

    assert [str(each) for each in missing] == ["delete nodes"]
    assert str(wanted[0]) == "patch nodes/status"
    assert str(wanted[2]) == "get leases.coordination.k8s.io ccm in kube-system"
