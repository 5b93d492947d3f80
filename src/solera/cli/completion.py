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


def papers(incomplete: str) -> list[str]:
    """Names of tables and figures of papers."""
    from solera.runs.papers import papers as known

    return _beginning(
        (f"{key}/{each.id}" for key, paper in known().items() for each in paper.table), incomplete
    )


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
