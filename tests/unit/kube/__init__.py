"""Tests of the pure part of capox/kube."""
