"""Shell completion; `solera --install-completion` turns it on."""

from __future__ import annotations

from collections.abc import Iterable

from solera.cli.catalogue import catalogue


def methods(incomplete: str) -> list[str]:
    """Names of methods."""
    return _beginning((entry["name"] for entry in catalogue()["methods"]), incomplete)


def plugins(incomplete: str) -> list[str]:
    """Names of plug-ins."""
    return _beginning((entry["name"] for entry in catalogue()["plugins"]), incomplete)


def datasets(incomplete: str) -> list[str]:
    """Names of data sets. Your own files are not offered."""
    from solera.data.datasets import names

    return _beginning(names(), incomplete)


def presets(incomplete: str) -> list[str]:
    """Names of presets."""
    return _beginning((entry["name"] for entry in catalogue()["presets"]), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
