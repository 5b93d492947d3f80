"""Linear algebra on item tables."""

from __future__ import annotations

import numpy as np

from solera.runs.tables import Table


def singular_values(table: Table) -> Table:
    """In descending order; from the small matrix of inner products, which is enough for a picture."""
    eigen = np.linalg.eigvalsh(table.T @ table)[::-1]
    values: Table = np.sqrt(np.clip(eigen, 0.0, None))
    return values


def information_abundance(values: Table) -> float:
    """The sum of singular values over the largest: d where all dimensions matter alike, else less."""
    return float(values.sum() / values[0])


def principal_plane(table: Table) -> tuple[Table, float]:
    """Coordinates on the two directions of most variance, and the share of the variance they have."""
    centred = table - table.mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    return centred @ directions[:, :-3:-1], float(values[-2:].sum() / values.sum())
