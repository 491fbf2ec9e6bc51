"""The backend that is used unless another is asked for: instances change their state and nothing runs in them."""

from __future__ import annotations

import datetime

from capox.rack import console, records
from capox.rack.guests.interface import Then


class NoGuests:
    """Nothing to start, to stop or to reach."""

    def start(self, instance: records.Instance) -> None:
        """There is nothing to start."""

    def stop(self, instance: records.Instance) -> None:
        """There is nothing to stop."""

    def reset(self, instance: records.Instance) -> None:
        """There is nothing to reset."""

    def kill(self, instance: records.Instance) -> None:
        """There is nothing to kill."""

    def delete(self, disk: records.Disk) -> None:
        """No disk holds anything."""

    def console(self, instance: records.Instance, moment: datetime.datetime) -> None:
        """Write to the console in the guest's stead."""
        (console.reset if instance.state == "rebooting" else console.power_on)(instance, moment)

    def when_settled(self, instance: records.Instance, moment: datetime.datetime, then: Then) -> None:
        """Nothing is ever under way."""
        del instance
        then(moment)

    async def addresses(self) -> None:
        """No address leads anywhere."""
