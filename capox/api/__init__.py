"""Cluster API's kinds and ours: pure data, nothing that awaits."""
