"""What attacks on uploads find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blocks.markdown import NONE_YET, folded, table

from solera_research.inference.figures import Figures, rounds_in_words
from solera_research.inference.records import AttackRecord
from solera_research.poisoning.records import PoisonRecord

SINGLE = ("touched", "popularity", "norm", "sign", "shadow")  # attacks on single uploads
SUMMED = ("popularity", "sign", "shadow", "shadow+popularity")  # and on sums
Attacks = Sequence[AttackRecord]


def attacks_on_single(attacks: Attacks) -> str:
    """AUC and precision over the whole catalogue, in the first round, in the last, and of all so far."""
    return _attack_table(attacks, SINGLE, lambda found: f"{_auc(found.auc)} / {found.precision:.3f}")


def attacks_among_touched(attacks: Attacks) -> str:
    """AUC among the rows in the upload."""
    return _attack_table(attacks, SINGLE[1:], lambda found: _auc(found.auc_touched))


def _attack_table(attacks: Attacks, names: Sequence[str], cell: Callable[[Figures], str]) -> str:
    rows = []
    for record in attacks:
        last = record.last_round
        for first, until in dict.fromkeys(((1, 1), (last, last), (1, last))):
            found = [record.find(name, (first, until)) for name in names]
            uploads = rounds_in_words(first, until)
            cells = (cell(each.target) if each else "" for each in found)
            rows.append((f"`{record.method}`", record.protection, uploads, *cells))
    return table(("", "uploads travel", "seen", *names), rows) if rows else NONE_YET


def attacks_on_sums(attacks: Attacks, question: str) -> str:
    """AUC and precision in the last round, by the number of clients in a sum."""
    sums = sorted({each.summed for record in attacks for each in record.findings})
    sums = [each for each in sums if each > 1 or question == "target"]
    rows = []
    for record in attacks:
        for name in SUMMED:
            found = [record.find(name, (record.last_round,) * 2, summed) for summed in sums]
            figures = (getattr(each, question) if each else None for each in found)
            cells = (f"{_auc(each.auc)} / {each.precision:.3f}" if each else "" for each in figures)
            rows.append((f"`{record.method}`", record.protection, name, *cells))
    head = ("", "uploads travel", "attack", *(f"{each} clients" if each > 1 else "alone" for each in sums))
    return table(head, rows) if rows else NONE_YET


def attacks_by_mode(attacks: Attacks) -> str:
    """What the best of the attacks finds in the last round, by method and by what protects uploads."""
    rows = []
    for method in dict.fromkeys(record.method for record in attacks):
        mine = {record.protection: record for record in attacks if record.method == method}
        local, central = (
            next((mine[p] for p in mine if p.startswith(m)), None) for m in ("local", "central")
        )
        seen = [
            (mine.get("plain"), 1),
            (local, 1),
            (central, None),
            (mine.get("plain"), 20),
            (mine.get("plain"), 100),
        ]
        cells = (best_attack(record, summed) if record else "refused" for record, summed in seen)
        rows.append((f"`{method}`", *cells, best_attack(mine.get("plain"), 100, ("popularity",))))
    head = ("", "plain", "local DP", "central DP", "sum of 20", "sum of 100", "*popularity alone*")
    return table(head, rows) if rows else NONE_YET


def best_attack(
    record: AttackRecord | None, summed: int | None, attacks: Sequence[str] = ("norm", "sign", "shadow")
) -> str:
    """AUC / precision of the best by AUC in the last round; `summed` None is the largest sum there is."""
    if record is None:
        return ""
    size = max(each.summed for each in record.findings) if summed is None else summed
    last = (record.last_round,) * 2
    found = [each for name in attacks if (each := record.find(name, last, size))]
    best = max(found, key=lambda each: each.target.auc or 0, default=None)
    return f"{_auc(best.target.auc)} / {best.target.precision:.3f}" if best else ""


def attack_commands(attacks: Sequence[AttackRecord | PoisonRecord]) -> str:
    """What made the records, with today's names of options."""
    lines = "\n".join(r.command.replace("--wire paper-laplace=", "--noise laplace:") for r in attacks)
    return folded(f"The {len(attacks)} commands", f"```console\n{lines}\n```") if attacks else NONE_YET


def plain(attacks: Attacks, dataset: str) -> Attacks:
    """Those on uploads without protection."""
    return [record for record in on(attacks, dataset) if record.protection == "plain"]


def on(attacks: Attacks, dataset: str) -> Attacks:
    """Those on one data set."""
    return [record for record in attacks if record.dataset == dataset]


def _auc(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
