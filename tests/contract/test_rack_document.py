"""The rack keeps to Oxide's OpenAPI document: every operation, every answer, whatever it is asked."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from capox.rack import document, inventory
from capox.rack.call import HANDLERS, OPEN_OPERATIONS
from tests.contract import openapi, rack_life
from tests.contract.rack_life import Life
from tests.rack import GIB, RackUnderTest

COLUMNS = 2


def table(counts: dict[str, tuple[int, int]]) -> str:
    """The coverage as a table: operation, answers 2xx, answers 4xx."""
    cells = [f"{name:<44} {good:>4} {bad:>4}" for name, (good, bad) in counts.items()]
    head = f"{'operation':<44} {'2xx':>4} {'4xx':>4}"
    rows = [head, *cells]
    height = -(-len(rows) // COLUMNS)
    columns = [rows[start : start + height] for start in range(0, len(rows), height)]
    return "\n".join("   ".join(row).rstrip() for row in itertools.zip_longest(*columns, fillvalue=""))


async def test_every_operation_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    """One run reaches a successful answer, checked against the document, of every operation that the rack has.

    The run ends with the world as it began, and every operation that asks for credentials refuses a caller without.
    """
    async with RackUnderTest(rack_life.INSTANT) as rack:
        rack_life.furnish(rack)
        before = inventory.dump(rack.state)
        life = Life(rack)
        await rack_life.live(life)
        after = inventory.dump(rack.state)
        for operation in sorted(HANDLERS.keys() - OPEN_OPERATIONS):
            assert await life.knock(operation) in {400, 401}
        counts = life.counts()

    with capsys.disabled():
        print(f"\nThe rack's operations, all {len(counts)}, in one run:\n{table(counts)}")  # noqa: T201 -- for people
    assert [name for name, (good, _) in counts.items() if not good] == []
    assert [name for name, (_, bad) in counts.items() if not bad and name not in OPEN_OPERATIONS] == []
    assert rack.app.violations == []
    assert after == before


# What every answer has to keep to, whatever was asked.
CHECKS: list[Any] = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
]

# Texts whose patterns are so intricate that values cannot be drawn from them within any bound; they are drawn by hand.
# Answers are judged by the untouched document.
PATTERNED = ("Hostname", "IcmpParamRange", "Ipv4Net", "Ipv6Net", "L4PortRange", "MacAddr", "Name")

# Values with which a request gets beyond the first refusal.
FITTING: dict[str, Any] = {"memory": 2 * GIB, "size": 2 * GIB, "ncpus": 2, "hostname": "node"}
# In bodies, parameters' things go by other names as well.
ALIASES = {"parent": "instance", "boot_disk": "disk", "vpc_name": "vpc", "subnet_name": "subnet", "image_id": "image"}


@functools.cache
def operations(*, is_simplified: bool) -> dict[str, Any]:
    """Schemathesis's view of each operation that the rack has: simplified to draw from, or as it is, to judge by."""
    paths: dict[str, Any] = {}
    for operation_id in HANDLERS:
        operation = openapi.OPERATIONS[operation_id]
        raw = openapi.DOCUMENT["paths"][operation["path"]][operation["verb"].lower()]
        paths.setdefault(operation["path"], {})[operation["verb"].lower()] = raw
    schemas = dict(openapi.DOCUMENT["components"]["schemas"])
    for name in PATTERNED if is_simplified else ():
        schemathesis.openapi.format(f"capox-{name}", openapi.values({"$ref": f"#/components/schemas/{name}"}))
        schemas[name] = {"type": "string", "format": f"capox-{name}"}
    components = openapi.DOCUMENT["components"] | {"schemas": schemas}
    schema = schemathesis.openapi.from_dict({**openapi.DOCUMENT, "paths": paths, "components": components})
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {operation.definition.raw["operationId"]: operation for operation in found}


def cases(operation_id: str, mode: GenerationMode) -> Any:
    """Requests that fit the document, or that do not."""
    return operations(is_simplified=True)[operation_id].as_strategy(generation_mode=mode)


class Settled:
    """A rack with one of each resource, made anew after whatever changed it."""

    def __init__(self) -> None:
        self._rack: RackUnderTest | None = None
        self._dump: Any = None
        self.known: dict[str, tuple[str, str]] = {}

    async def rack(self) -> RackUnderTest:
        """The rack as it was made."""
        if self._rack is None:
            self._rack = RackUnderTest(rack_life.INSTANT)
            rack_life.furnish(self._rack)
            self.known = await rack_life.settle_in(Life(self._rack))
            self._dump = self.dump()
        return self._rack

    def dump(self) -> Any:
        """Everything on the rack that a refused request must not change."""
        assert self._rack is not None
        found = inventory.dump(self._rack.state)
        for silo in found["silos"]:
            for project in silo["projects"]:
                for instance in project["instances"]:
                    # A refused delete or stop disables the automatic restart nevertheless (semantics 3.2).
                    del instance["is_meant_to_run"], instance["transitions"]
        return found

    async def has_changed(self) -> bool:
        """Whether the rack is not as it was made; then it will be made anew."""
        assert self._rack is not None
        changed = bool(self.dump() != self._dump)
        if changed:
            await self._rack.http.aclose()
            self._rack = None
        return changed


def request_of(case: Case[Any]) -> dict[str, Any]:
    """A generated case as arguments for httpx, with the admin's credentials."""
    sent = case.as_transport_kwargs(base_url="http://rack")
    headers = {"authorization": "Bearer oxide-token-admin"}
    if "Content-Type" in sent["headers"]:
        headers["content-type"] = sent["headers"]["Content-Type"]
    request: dict[str, Any] = {"method": sent["method"], "url": sent["url"], "headers": headers}
    request["params"] = sent.get("params") or {}
    if "json" in sent:
        request["content"] = json.dumps(sent["json"]).encode()
    elif "data" in sent:
        request["content"] = sent["data"] if isinstance(sent["data"], bytes) else str(sent["data"]).encode()
    return request


def aim(case: Case[Any], known: dict[str, tuple[str, str]], *, by_id: bool) -> None:
    """Let a case be about what is there, by id or by name within its project, VPC and instance."""
    operation = document.load().operations[openapi_id(case)]
    for parameter in operation.in_place("path"):
        if parameter.name in known:
            case.path_parameters[parameter.name] = known[parameter.name][by_id]
    for parameter in operation.in_place("query"):
        if parameter.name in known:
            is_needed = parameter.required or parameter.name in operation.required_on_first_page
            if by_id and not is_needed:
                case.query.pop(parameter.name, None)
            else:
                case.query[parameter.name] = known[parameter.name][by_id and is_needed]
    if isinstance(case.body, dict):
        case.body = aimed(case.body, known, by_id=by_id)


def aimed(body: Any, known: dict[str, tuple[str, str]], *, by_id: bool) -> Any:
    """A body whose names and sizes are of things that are there and fit."""
    if isinstance(body, list):
        return [aimed(member, known, by_id=by_id) for member in body]
    if not isinstance(body, dict):
        return body
    out = {}
    for key, value in body.items():
        meant = ALIASES.get(key, key)
        if meant in known and isinstance(value, str):
            out[key] = known[meant][by_id or key.endswith("_id")]
        elif key in FITTING and isinstance(value, int | str):
            out[key] = FITTING[key]
        else:
            out[key] = aimed(value, known, by_id=by_id)
    return out


def openapi_id(case: Case[Any]) -> str:
    """The operationId of a case."""
    return str(case.operation.definition.raw["operationId"])


def may_fail(case: Case[Any]) -> bool:
    """2.1: a real rack's database refuses longer descriptions and host names than its parser, which ends in 500."""
    body = case.body if isinstance(case.body, dict) else {}

    def long(value: Any) -> bool:
        if isinstance(value, dict):
            description, hostname = value.get("description"), value.get("hostname")
            return (
                (isinstance(description, str) and len(description) > 512)
                or (isinstance(hostname, str) and 64 <= len(hostname) <= 253)
                or any(long(member) for member in value.values())
            )
        return isinstance(value, list) and any(long(member) for member in value)

    return long(body)


def can_be_wrong(operation_id: str) -> bool:
    """Whether an operation takes anything that could be wrong."""
    operation = openapi.OPERATIONS[operation_id]
    return bool(operation.get("parameters")) or "requestBody" in operation


async def put_to_the_test(case: Case[Any], settled: Settled) -> None:
    """Send a case and judge what comes back, and what became of the world."""
    rack = await settled.rack()
    answer = await rack.http.request(**request_of(case))
    rack.pass_time(0)
    changed = await settled.has_changed()
    assert rack.app.violations == []
    if answer.status_code >= 500:
        assert answer.status_code in {503, 507} or (answer.status_code == 500 and may_fail(case)), answer.text
    if not answer.is_success:
        assert not changed, f"{answer.status_code} {answer.text}"
        assert_error(answer)
    case.validate_response(answer, checks=CHECKS)
    operations(is_simplified=False)[openapi_id(case)].validate_response(answer)


def assert_error(answer: httpx.Response) -> None:
    """1.3: every refusal has the error's body, in JSON, with the request's id."""
    error = answer.json()
    assert error.keys() in ({"request_id", "message"}, {"request_id", "message", "error_code"})
    assert error["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("operation_id", sorted(HANDLERS))
@settings(
    max_examples=6,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(data=st.data())
async def test_whatever_fits_the_document(operation_id: str, data: st.DataObject) -> None:
    """A request that the document allows gets an answer that the document allows; refused, it changes nothing."""
    settled = Settled()
    case = data.draw(cases(operation_id, GenerationMode.POSITIVE))
    await settled.rack()
    by_id = data.draw(st.sampled_from([None, False, True]))
    if by_id is not None:
        aim(case, settled.known, by_id=by_id)
    await put_to_the_test(case, settled)


@pytest.mark.parametrize("operation_id", [name for name in sorted(HANDLERS) if can_be_wrong(name)])
@settings(
    max_examples=3,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(data=st.data())
async def test_whatever_does_not_fit(operation_id: str, data: st.DataObject) -> None:
    """A request that the document does not allow is answered within the document all the same."""
    await put_to_the_test(data.draw(cases(operation_id, GenerationMode.NEGATIVE)), Settled())


@pytest.mark.parametrize("body", [{"id": "1", "name": "demo"}, {"items": []}, []])
def test_judge_notices(body: Any) -> None:
    """An answer that leaves the document would be noticed."""
    answer = httpx.Response(200, json=body, request=httpx.Request("GET", "http://rack/v1/projects/demo"))
    answer.elapsed = datetime.timedelta()

    with pytest.raises((Failure, FailureGroup)):
        operations(is_simplified=False)["project_view"].validate_response(answer)
