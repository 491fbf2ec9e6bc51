"""Finding things by name or id (semantics 1.6)."""

from __future__ import annotations

import pytest

from tests.contract.rack import instance_life, staging
from tests.rack import RackUnderTest

SOME_ID = "00000000-0000-4000-8000-000000000000"

ID_AND_PROJECT = {
    "instances": "when providing instance as an ID project should not be specified",
    "disks": "when providing disk as an ID project should not be specified",
    "floating-ips": "when providing Floating IP as an ID project should not be specified",
    "vpcs": "when providing vpc as an ID, project should not be specified",
    "anti-affinity-groups": "when providing anti_affinity_group as an ID, project should not be specified",
    "external-subnets": "when providing external subnet as an ID project should not be specified",
    "images": "when providing image as an ID, project should not be specified",
}
NAME_ALONE = {
    "instances": "instance should either be UUID or project should be specified",
    "disks": "disk should either be UUID or project should be specified",
    "floating-ips": "Floating IP should either be UUID or project should be specified",
    "vpcs": "vpc should either be an ID or project should be specified",
    "vpc-subnets": "subnet should either be an ID or vpc should be specified",
    "network-interfaces": "network_interface should either be a UUID or instance should be specified",
    "anti-affinity-groups": "anti_affinity_group should either be UUID or project should be specified",
    "external-subnets": "external subnet should either be a UUID or project should be specified",
}
KINDS = {
    "instances": "instance",
    "disks": "disk",
    "floating-ips": "floating-ip",
    "vpcs": "vpc",
    "anti-affinity-groups": "anti-affinity-group",
    "external-subnets": "external-subnet",
}


@pytest.mark.parametrize("collection", ID_AND_PROJECT)
async def test_id_and_project(client: RackUnderTest, collection: str) -> None:
    """1.6: an id stands alone; with a project beside it the request is refused, in each resource's own words."""
    error = await client.refused(400, "GET", f"/v1/{collection}/{SOME_ID}", project="demo")

    assert (error["error_code"], error["message"]) == ("InvalidRequest", ID_AND_PROJECT[collection])


@pytest.mark.parametrize("collection", NAME_ALONE)
async def test_name_alone(client: RackUnderTest, collection: str) -> None:
    """1.6: a name needs what it is unique in; without it the request is refused, in each resource's own words."""
    error = await client.refused(400, "GET", f"/v1/{collection}/some-name")

    assert (error["error_code"], error["message"]) == ("InvalidRequest", NAME_ALONE[collection])


async def test_subnet_id_stands_alone(client: RackUnderTest) -> None:
    """1.6: neither a VPC nor a project goes with the id of a subnet."""
    error = await client.refused(400, "GET", f"/v1/vpc-subnets/{SOME_ID}", vpc="default", project="demo")

    assert error["error_code"] == "InvalidRequest"
    assert error["message"] == "when providing subnet as an ID, vpc and project should not be specified"


async def test_interface_id_stands_alone(client: RackUnderTest) -> None:
    """1.6: neither an instance nor a project goes with the id of a NIC."""
    error = await client.refused(400, "GET", f"/v1/network-interfaces/{SOME_ID}", instance="node", project="demo")

    assert error["error_code"] == "InvalidRequest"
    expected = "when providing network_interface as an id instance and project should not be specified"
    assert error["message"] == expected


async def test_image_name_alone_is_a_silo_image(client: RackUnderTest) -> None:
    """1.6, 8: an image's name without a project is looked up among the silo's images, with one in that project only."""
    view = await client.must(200, "GET", "/v1/images/debian")

    assert view["id"] == client.image.id
    await client.refused(404, "GET", "/v1/images/debian", project="demo")


@pytest.mark.parametrize("collection", KINDS)
async def test_unknown_name_and_id(client: RackUnderTest, collection: str) -> None:
    """1.6: what is not there is 404 with the kind of resource, and the name or the id that was given."""
    by_name = await client.refused(404, "GET", f"/v1/{collection}/missing", project="demo")
    by_id = await client.refused(404, "GET", f"/v1/{collection}/{SOME_ID}")

    assert by_name["message"] == f'not found: {KINDS[collection]} with name "missing"'
    assert by_id["message"] == f'not found: {KINDS[collection]} with id "{SOME_ID}"'


async def test_unknown_project_is_named(client: RackUnderTest) -> None:
    """1.6: when the project is not there, the 404 names the project and not the thing in it."""
    for method, path in (("GET", "/v1/instances/node"), ("GET", "/v1/instances"), ("GET", "/v1/disks/data")):
        error = await client.refused(404, method, path, project="nowhere")
        assert error["message"] == 'not found: project with name "nowhere"'


async def test_project_by_name_or_id(client: RackUnderTest) -> None:
    """1.6: the project itself may be given by name or by id, and an id in upper case is the same id."""
    disk = await staging.add_disk(client, "data")

    for project in ("demo", client.project.id, client.project.id.upper()):
        view = await client.must(200, "GET", "/v1/disks/data", project=project)
        assert view["id"] == disk.id
    assert (await client.must(200, "GET", f"/v1/disks/{disk.id.upper()}"))["name"] == "data"


async def test_names_in_bodies_are_of_the_same_project(client: RackUnderTest) -> None:
    """1.6: a disk named in an attach request is looked up in the instance's project, an id anywhere."""
    await client.must(201, "POST", "/v1/projects", {"name": "other", "description": ""})
    elsewhere = await client.must(201, "POST", "/v1/disks", staging.disk_body("data"), project="other")
    instance = await instance_life.create(client)
    path = f"/v1/instances/{instance['id']}/disks/attach"

    by_name = await client.refused(404, "POST", path, {"disk": "data"})
    by_id = await client.refused(400, "POST", path, {"disk": elsewhere["id"]})

    assert by_name["message"] == 'not found: disk with name "data"'
    assert by_id["message"] == "disk must be in the same project as the instance"
