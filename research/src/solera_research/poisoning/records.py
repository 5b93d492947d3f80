"""Records of poisoned trainings: one for each data set, method, attack and defence."""

from __future__ import annotations

from solera_research.poisoning.experiment import AttackPlan, Outcome
from solera_research.records import Experiment


class PoisonRecord(Experiment):
    """Settings, command, program and result of one poisoned training."""

    defence: str
    plot: AttackPlan
    outcome: Outcome

    @property
    def name(self) -> str:
        """Data set, method, attack and defence."""
        share = f"-{self.plot.malicious:g}x{self.plot.boost:g}" if self.outcome.malicious_clients else ""
        return self._named(self.method, self.plot.attack + share, self.defence)
