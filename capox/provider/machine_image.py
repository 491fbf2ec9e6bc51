"""Which image a machine's boot disk is a copy of: given by id, or found by name at the moment it is needed."""

from __future__ import annotations

from uuid import UUID

from capox.api.v1alpha1 import OxideMachineSpec
from capox.oxide.errors import ObjectNotFound
from capox.provider.racks import Project

__all__ = ["ImageNotFoundError", "find_image"]


class ImageNotFoundError(Exception):
    """There is no image of this name where one was looked for; the message says where."""


async def find_image(project: Project, spec: OxideMachineSpec) -> UUID:
    """The image's id. A name is looked for in the project, then among the images of the silo.

    Raises:
        ImageNotFoundError: There is none of this name.
        OxideError: It could not be looked up.
    """
    if spec.image_id is not None:
        return UUID(spec.image_id)
    image = spec.image
    if image is None:
        raise ImageNotFoundError("neither imageID nor image is set; set one of them")
    within = image.project or project.name
    try:
        return (await project.client.image_view(image.name, project=within)).id
    except ObjectNotFound:
        pass
    try:
        return (await project.client.image_view(image.name)).id
    except ObjectNotFound:
        raise ImageNotFoundError(
            f"image {image.name!r} is neither in project {within!r} nor among the silo's images; "
            "make it, or correct spec.image.name"
        ) from None
