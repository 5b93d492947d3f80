"""HTML templates of the package. All inserted values are escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(package: str, name: str, **content: Any) -> str:
    """Render a template from the package's `templates` folder."""
    return _environment(package).get_template(name).render(content)


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
