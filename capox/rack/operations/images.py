"""Images (semantics 8)."""

from __future__ import annotations

from capox.rack import errors, images, names, records, select
from capox.rack.call import Call, check_description, operation
from capox.rack.json import JSON


@operation
def image_list(call: Call) -> JSON:
    """`GET /v1/images`: those of the project, or without one those of the silo, never both."""
    if "project" in call.query:
        return call.page(call.rack.images, select.project_of_query(call).id, images.view)
    call.actor.require_on_silo("read")
    return call.page(call.rack.images, call.actor.silo.id, images.view)


@operation
def image_create(call: Call) -> JSON:
    """`POST /v1/images`: from a snapshot, for the project or for the silo."""
    project = select.project_of_query(call, "compute") if "project" in call.query else None
    if project is None:
        call.actor.require_on_silo("compute")
    snapshot = _source(call, project)
    body = call.body
    check_description(body["description"])
    record = records.Image(
        **call.rack.identity(body["name"], body["description"]),
        silo=call.actor.silo.id,
        project=None if project is None else project.id,
        os=body["os"],
        version=body["version"],
        size_bytes=snapshot.size_bytes,
        block_size_bytes=snapshot.block_size_bytes,
    )
    return images.view(images.add(call, record))


@operation
def image_view(call: Call) -> JSON:
    """`GET /v1/images/{image}`."""
    return images.view(_image(call))


@operation
def image_delete(call: Call) -> JSON:
    """`DELETE /v1/images/{image}`: disks that were made from it stay."""
    record = _image(call)
    images.require_change(call, record)
    call.rack.images.delete(record)


@operation
def image_promote(call: Call) -> JSON:
    """`POST /v1/images/{image}/promote`: give a project's image to the whole silo."""
    record = _image(call)
    if record.project is None:
        raise errors.invalid_request("Cannot promote a silo image")
    images.require_change(call, record)
    call.actor.require_on_silo("compute")
    return images.view(images.move(call, record, None))


@operation
def image_demote(call: Call) -> JSON:
    """`POST /v1/images/{image}/demote`: give a silo's image to the project of the query."""
    record = images.find(call, call.path["image"], None)
    if record.project is not None:
        raise errors.invalid_request("Cannot demote a project image")
    images.require_change(call, record)
    return images.view(images.move(call, record, select.project_of_query(call, "compute")))


def _image(call: Call) -> records.Image:
    return images.find(call, call.path["image"], call.query.get("project"))


def _source(call: Call, project: records.Project | None) -> records.Snapshot:
    """The snapshot that an image is made from.

    Raises:
        Refusal: 404 when the caller cannot see it, 400 when it is of another project than the image.
    """
    identity = names.parse_uuid(call.body["source"]["id"])
    table = call.rack.snapshots
    snapshot = select.visible(call, table, table.by_id(identity), identity, "read")
    if project is not None and snapshot.project != project.id:
        raise errors.invalid_request("snapshot does not belong to this project")
    return snapshot
