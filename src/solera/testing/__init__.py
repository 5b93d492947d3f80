"""Conformance tests for methods: subclass `MethodConformance` in your own test."""

from solera.testing.conformance import MethodConformance

__all__ = ["MethodConformance"]
