"""Simulation: reconcilers, a small Kubernetes and the rack in one event loop on virtual time, repeatable by a seed."""
