"""The simulated rack: Oxide's API over HTTP, with the behaviour of a real one and none of its hardware.

It imports no other room of capox and no other room imports it: whatever talks to it does so as it would talk to a rack.
State lives in memory
and is gone when the process ends.
"""
