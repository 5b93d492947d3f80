"""Shell completion; `solera --install-completion` turns it on."""

from __future__ import annotations

from collections.abc import Iterable


def methods(incomplete: str) -> list[str]:
    """Names of methods."""
    from solera.methods import names

    return _beginning(names(), incomplete)


def plugins(incomplete: str) -> list[str]:
    """Names of plug-ins."""
    from solera.methods import PLUGINS

    return _beginning(PLUGINS, incomplete)


def datasets(incomplete: str) -> list[str]:
    """Names of data sets. Your own files are not offered."""
    from solera.data.datasets import names

    return _beginning(names(), incomplete)


def presets(incomplete: str) -> list[str]:
    """Names of presets."""
    from solera.runs.presets import presets as known

    return _beginning(known(), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
