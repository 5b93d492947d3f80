"""Progress reports of a run."""

from __future__ import annotations

from typing import NamedTuple

from solera.runs.result import RoundEntry


class Progress(NamedTuple):
    """The progress report after every round."""

    rounds_done: int
    rounds: int
    entry: RoundEntry

    @property
    def figures(self) -> str:
        """Loss and validation NDCG@10 as text."""
        validation = self.entry.validation.full["ndcg@10"]
        return f"loss {self.entry.loss:.4f} · validation NDCG@10 {validation:.4f}"
