"""Choices of how long things take on the rack.

`instant`: nothing takes time, for tests that are about something else. `quick`, the default: everything takes a moment,
so that states in between can be seen. `realistic`: the figures of a real rack as far as they are known (semantics 10).
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import pydantic

from capox.rack.state import Timing

Preset = Literal["instant", "quick", "realistic"]
Seconds = Annotated[float, pydantic.Field(ge=0, le=86_400)]

PRESETS: dict[Preset, Timing] = {
    "instant": Timing(**{field.name: 0.0 for field in dataclasses.fields(Timing)}),
    "quick": Timing(),
    # Seen on racks: the create request, starts of 20 to 40 seconds with much memory, 4 to 6 seconds for a disk under
    # load, and the periods of the background tasks. Stop, reboot and address changes are estimates: nobody has
    # published figures.
    "realistic": Timing(
        instance_create=1.2,
        instance_start=20.0,
        instance_stop=5.0,
        instance_reboot=10.0,
        disk_create=5.0,
        disk_delete=5.0,
        address_change=0.5,
        failure_notice=30.0,
        auto_restart=60.0,
        auto_restart_cooldown=300.0,
        sled_timeout=60.0,
    ),
}


class TimingChoice(pydantic.BaseModel):
    """A preset, and single durations in seconds that differ from it. They are those of `state.Timing`."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    preset: Preset = "quick"
    instance_create: Seconds | None = None
    instance_start: Seconds | None = None
    instance_stop: Seconds | None = None
    instance_reboot: Seconds | None = None
    disk_create: Seconds | None = None
    disk_delete: Seconds | None = None
    address_change: Seconds | None = None
    failure_notice: Seconds | None = None
    auto_restart: Seconds | None = None
    auto_restart_cooldown: Seconds | None = None
    sled_timeout: Seconds | None = None

    def timing(self) -> Timing:
        """The durations that were chosen."""
        given = self.model_dump(exclude={"preset"}, exclude_none=True)
        return dataclasses.replace(PRESETS[self.preset], **given)


def as_choice(value: object) -> object:
    """A preset's name alone stands for the preset."""
    return {"preset": value} if isinstance(value, str) else value
