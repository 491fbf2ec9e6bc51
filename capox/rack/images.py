"""Images: which one is meant, and who may see and change it (semantics 1.6, 8).

An image belongs to a project or to the whole silo. By its id it is seen by those who have a role on the silo, whatever
they may do in its project; by its name in a project, by those who may see the project.
"""

from __future__ import annotations

from capox.rack import errors, names, records, select, views
from capox.rack.call import Call
from capox.rack.json import JSON

PROJECT_IMAGE = "project-image"
SILO_IMAGE = "silo-image"


def find(call: Call, reference: str, project_reference: str | None) -> records.Image:
    """The image of this id; or of this name in a project; or, without a project, of this name among the silo's images.

    Raises:
        Refusal: 400 when an id and a project were given; 404 when there is none that the caller may see.
    """
    table = call.rack.images
    if names.is_uuid(reference):
        if project_reference is not None:
            raise errors.invalid_request("when providing image as an ID, project should not be specified")
        return by_id(call, reference)
    if project_reference is not None:
        project = select.project(call, project_reference)
        found = table.by_name(project.id, reference)
        if found is None:
            raise errors.not_found(PROJECT_IMAGE, name=reference)
        return found
    found = table.by_name(call.actor.silo.id, reference)
    if found is None or not call.actor.may_on_silo("read"):
        raise errors.not_found(SILO_IMAGE, name=reference)
    return found


def by_id(call: Call, identity: str) -> records.Image:
    """The image of this id.

    Raises:
        Refusal: 404.
    """
    identity = names.parse_uuid(identity)
    found = call.rack.images.by_id(identity)
    if found is None or found.silo != call.actor.silo.id or not call.actor.may_on_silo("read"):
        raise errors.not_found("image", identity=identity)
    return found


def require_change(call: Call, image: records.Image) -> None:
    """Refuse a caller who may see an image and not change it.

    Raises:
        Refusal: 403.
    """
    if image.project is None:
        call.actor.require_on_silo("compute")
        return
    project = call.rack.projects.by_id(image.project)
    assert project is not None, "an image outlived its project"
    call.actor.require("compute", project)


def add(call: Call, image: records.Image) -> records.Image:
    """Put a new image into its project or silo.

    Raises:
        Refusal: the name is taken; a real rack speaks of a project image even when it is the silo's.
    """
    _check_name(call, image, image.parent, PROJECT_IMAGE)
    return call.rack.images.insert(image)


def move(call: Call, image: records.Image, project: records.Project | None) -> records.Image:
    """Give an image to a project, or, with None, to the whole silo; it keeps its id.

    Raises:
        Refusal: the name is taken there.
    """
    parent, resource = (image.silo, SILO_IMAGE) if project is None else (project.id, PROJECT_IMAGE)
    _check_name(call, image, parent, resource)
    call.rack.images.delete(image)
    image.project = None if project is None else project.id
    image.time_modified = call.rack.now()
    return call.rack.images.insert(image)


def view(record: records.Image) -> JSON:
    """Schema `Image`."""
    return views.identity(record) | {
        "project_id": record.project,
        "os": record.os,
        "version": record.version,
        "size": record.size_bytes,
        "block_size": record.block_size_bytes,
        "digest": record.digest,
    }


def _check_name(call: Call, image: records.Image, parent: str, resource: str) -> None:
    if call.rack.images.by_name(parent, image.name) is not None:
        raise errors.already_exists(resource, image.name)
