"""Machines that really boot, inside the simulated rack: needs Docker (`make e2e` starts one where root may)."""
