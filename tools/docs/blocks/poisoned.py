"""What malicious clients reach, with and without defences."""

from __future__ import annotations

from collections.abc import Sequence

from blocks.markdown import NONE_YET, table

from solera_research.poisoning.experiment import Outcome
from solera_research.poisoning.records import PoisonRecord

OF_WEIGHTS = ("weight-bound", "weights believed")  # poisoning: where clients are weighted by what they claim
Poisonings = Sequence[PoisonRecord]


def poisoning(records: Poisonings) -> str:
    """Loud promotion by method and defence: no attack, and every share of malicious clients."""
    shown = [each for each in records if each.plot.attack == "none" or _is_loud(each, records)]
    shown = [each for each in shown if each.method in {e.method for e in shown if e.plot.attack != "none"}]
    shares = sorted({each.plot.malicious for each in shown if each.plot.attack != "none"})
    found = {(e.method, e.defence, _share(e)): e.outcome for e in shown}
    rows = [
        (f"`{method}`", defence, *(_poisoned_cell(found.get((method, defence, s))) for s in (0, *shares)))
        for method, defence in dict.fromkeys((each.method, each.defence) for each in _by_defence(shown))
    ]
    return table(("", "defence", "no attack", *(f"{s:.1%}" for s in shares)), rows) if rows else NONE_YET


def other_poisoning(records: Poisonings) -> str:
    """All other attacks, by defence."""
    shown = [each for each in records if each.plot.attack != "none" and not _is_loud(each, records)]
    defences = list(dict.fromkeys(each.defence for each in _by_defence(shown)))
    found: dict[tuple[str, str, str], dict[str, Outcome]] = {}
    for each in shown:
        plot = f"`{each.method}`", f"{each.plot.attack} × {each.plot.boost:g}", f"{each.plot.malicious:.1%}"
        found.setdefault(plot, {})[each.defence] = each.outcome
    rows = [
        (
            *plot,
            *(
                "–" if d in OF_WEIGHTS and "weight" not in plot[1] else _poisoned_cell(cells.get(d))
                for d in defences
            ),
        )
        for plot, cells in found.items()
    ]
    return table(("", "attack", "malicious", *defences), rows) if rows else NONE_YET


def _is_loud(record: PoisonRecord, among: Poisonings) -> bool:
    loud = max((each.plot.boost for each in among if each.plot.attack == "promotion"), default=0)
    return (record.plot.attack, record.plot.boost) == ("promotion", loud)


def _share(record: PoisonRecord) -> float:
    return 0 if record.plot.attack == "none" else record.plot.malicious


def _by_defence(records: Poisonings) -> Poisonings:
    return sorted(records, key=lambda each: (each.method, each.defence != "none"))


def _poisoned_cell(outcome: Outcome | None) -> str:
    return f"{outcome.exposure:.3f} / {outcome.ndcg:.4f}" if outcome else "–"


def of_dataset(records: Poisonings, dataset: str) -> Poisonings:
    """Those on one data set."""
    return [record for record in records if record.dataset == dataset]
