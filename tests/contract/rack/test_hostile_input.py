"""Input that no client of good faith sends: refused like any mistake, and nothing of it is kept (semantics 1.3)."""

from __future__ import annotations

import base64
import json

import pytest

from tests.rack import RackUnderTest


@pytest.mark.parametrize(
    "text", ['{"name": "half", "description": "\\ud800"}', '{"name": "half", "description": "\\udfff x"}']
)
async def test_half_of_a_surrogate_pair_is_no_text(client: RackUnderTest, text: str) -> None:
    """1.3: it is refused, and lists that would hold it go on working."""
    answer = await client.http.post(
        "/v1/projects",
        content=text.encode(),
        headers={"authorization": "Bearer oxide-token-admin", "content-type": "application/json"},
    )

    assert answer.status_code == 400
    assert [each["name"] for each in (await client.must(200, "GET", "/v1/projects"))["items"]] == ["demo"]


@pytest.mark.parametrize("port", ["80\n", "0080\n", "\n80", "80-90\n"])
async def test_port_with_a_line_break_is_none(client: RackUnderTest, port: str) -> None:
    """7.2: it is refused, and the rules stay what they were."""
    query = {"vpc": "default", "project": "demo"}
    before = await client.must(200, "GET", "/v1/vpc-firewall-rules", **query)
    rule = {
        "name": "web",
        "description": "",
        "status": "enabled",
        "direction": "inbound",
        "action": "allow",
        "priority": 100,
        "targets": [{"type": "vpc", "value": "default"}],
        "filters": {"ports": [port]},
    }

    await client.refused(400, "PUT", "/v1/vpc-firewall-rules", {"rules": [rule]}, **query)

    assert await client.must(200, "GET", "/v1/vpc-firewall-rules", **query) == before


async def test_id_with_a_line_break_is_none(client: RackUnderTest) -> None:
    """1.6: it is neither an id nor a name."""
    await client.refused(400, "GET", "/v1/instances", project=f"{client.project.id}\n")


@pytest.mark.parametrize("limit", ["9" * 30, "9" * 5000])
async def test_number_without_end_is_refused(client: RackUnderTest, limit: str) -> None:
    """1.5: whatever its length."""
    await client.refused(400, "GET", "/v1/projects", limit=limit)


async def test_version_without_end_is_refused(client: RackUnderTest) -> None:
    """1.2: whatever its length."""
    await client.refused(400, "GET", "/v1/projects", headers={"api-version": "9" * 5000 + ".0.0"})


@pytest.mark.parametrize(
    "start",
    [
        {"sort_by": ["name_ascending"], "selector": {"project": "demo"}, "last_seen": "a"},
        {"sort_by": {}, "selector": {"project": "demo"}, "last_seen": "a"},
        {"sort_by": "name_ascending", "selector": {}, "last_seen": "a"},
        {"sort_by": "name_ascending", "selector": {"project": "\ud800"}, "last_seen": "a"},
        {"sort_by": "name_ascending", "selector": {"project": "No Name"}, "last_seen": "a"},
    ],
)
async def test_forged_page_token_is_refused(client: RackUnderTest, start: dict[str, object]) -> None:
    """1.5: what a token says is judged like what a query says."""
    token = base64.urlsafe_b64encode(json.dumps({"v": "v1", "page_start": start}).encode()).decode()

    await client.refused(400, "GET", "/v1/instances", page_token=token)
