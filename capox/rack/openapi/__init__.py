"""Oxide's OpenAPI document, as its makers publish it (Mozilla Public License 2.0, see LICENSE beside it)."""
