"""Tests of the developer tooling that need neither network nor control plane."""
