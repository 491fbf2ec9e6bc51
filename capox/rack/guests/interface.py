"""What the rack asks of a backend for guests.

The rack decides, a backend carries out. Its acts are begun by synchronous calls from the state machine
(`instance_states`) and done one after the other for each instance; `when_settled` tells when they are over. What
happens to a guest from outside, a backend tells the state machine, which shows it as a real rack would.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Protocol

from capox.rack import records

Then = Callable[[datetime.datetime], None]
"""Told the time at which a guest had come to where it was sent."""


class Guests(Protocol):
    """What runs inside instances."""

    def start(self, instance: records.Instance) -> None:
        """Power an instance's guest on: boot its boot disk with its seed, on its NICs."""
        ...

    def stop(self, instance: records.Instance) -> None:
        """Power it off, at once."""
        ...

    def reset(self, instance: records.Instance) -> None:
        """Power it off and on again."""
        ...

    def kill(self, instance: records.Instance) -> None:
        """Take it away as a crash would; nobody waits for it."""
        ...

    def delete(self, disk: records.Disk) -> None:
        """Forget what a disk holds."""
        ...

    def console(self, instance: records.Instance, moment: datetime.datetime) -> None:
        """Note that an instance comes to run, at `moment`, before its state says so."""
        ...

    def when_settled(self, instance: records.Instance, moment: datetime.datetime, then: Then) -> None:
        """Call `then` when all acts for the instance are over, now at the earliest.

        Args:
            instance: the instance.
            moment: what counts as now for a backend that has no acts.
            then: what to call; never, when the guest was lost on the way.
        """
        ...

    async def addresses(self) -> None:
        """Bring addresses, translations and firewall rules to what the rack says now, and return when they hold."""
        ...
