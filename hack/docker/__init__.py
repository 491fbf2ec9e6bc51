"""A Docker engine for the machines of the simulated rack: the one that answers, else one of our own."""
