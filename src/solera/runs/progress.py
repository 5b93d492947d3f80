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
        loss = f"loss {self.entry.loss:.4f}"
        return loss if self.ndcg is None else f"{loss} · validation NDCG@10 {self.ndcg:.4f}"

    @property
    def ndcg(self) -> float | None:
        """Validation NDCG@10 in full ranking; None of a round that was not validated."""
        validation = self.entry.validation
        return None if validation is None else validation.full["ndcg@10"]
