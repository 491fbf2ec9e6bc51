"""The simulated rack, held to the behaviour of a real one."""
