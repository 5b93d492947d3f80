"""Projection of vectors to two dimensions: t-SNE if scikit-learn is installed, otherwise PCA."""

from __future__ import annotations

from typing import NamedTuple

from solera.report.linear import principal_plane
from solera.runs.environment import package_version
from solera.runs.tables import Table

LEAST = 8  # vectors for t-SNE, which looks at neighbours
STEPS = 500  # its divergence is then within a hundredth of that after the usual 1000


class Projection(NamedTuple):
    """Places [n, 2], how they were found, and what the axes are."""

    places: Table
    words: str
    axes: tuple[str, str]


def project(vectors: Table) -> Projection:
    """Project vectors to two dimensions, deterministically."""
    if package_version("scikit-learn") is not None and len(vectors) >= LEAST:
        return Projection(
            _t_sne(vectors), "by t-SNE, which keeps neighbours together", ("t-SNE 1", "t-SNE 2")
        )
    places, share = principal_plane(vectors)
    words = f"on their two principal components, which have {share:.0%} of the variance"
    if len(vectors) >= LEAST:
        words += "; for t-SNE: pip install 'solera[figures]'"
    return Projection(places, words, ("first component", "second component"))


def _t_sne(vectors: Table) -> Table:
    from sklearn.manifold import TSNE  # noqa: PLC0415 - an extra, and slow to load
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with it

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    with threadpool_limits(limits=1):  # thousands of short steps: on busy cores, threads wait for each other
        places: Table = TSNE(perplexity=perplexity, init="pca", random_state=0, max_iter=STEPS).fit_transform(
            vectors
        )
    return places
