"""What every method must satisfy: subclass `MethodConformance` in a test of yours."""

from solera.testing.conformance import MethodConformance

__all__ = ["MethodConformance"]
