"""Tests of capox: unit, contract, sim, integration, and benchmarks."""
