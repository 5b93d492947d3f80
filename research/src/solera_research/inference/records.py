"""Records of attacks: one for each data set, method and protection."""

from __future__ import annotations

from solera_research.inference.figures import Finding
from solera_research.records import Experiment


class AttackRecord(Experiment):
    """What was attacked, by which command and program, and all that was found."""

    protection: str
    findings: tuple[Finding, ...]

    @property
    def name(self) -> str:
        """Data set, method and protection."""
        return self._named(self.method, self.protection.replace("ε = ", "epsilon="))

    def find(self, attack: str, rounds: tuple[int, int], summed: int = 1) -> Finding | None:
        """What an attack found in one kind of thing."""
        wanted = (attack, *rounds, summed)
        return next(
            (f for f in self.findings if (f.attack, f.first_round, f.last_round, f.summed) == wanted), None
        )

    @property
    def last_round(self) -> int:
        """The last attacked round."""
        return max(finding.last_round for finding in self.findings)
