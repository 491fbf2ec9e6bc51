"""Tests of capox/api: the kinds, their schema, and what is generated from them."""
