"""Fill the marked blocks of the documents from the program and from the records in results/, attacks/,
poisoning/ and privacy/.

    python docs/make_pages.py            rewrite the blocks in place
    python docs/make_pages.py --check    change nothing; exit 1 and name the pages that are stale

A block stands between `<!-- kind: names -->` and `<!-- end -->`. Records are what `solera bench run` leaves
of a matrix with presets, `solera attack --record` of an attack, `solera poison --record` of a poisoned
training; docs/benchmarks.md has more.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import NamedTuple

from pydantic import BaseModel

from solera.baselines import BASELINES
from solera.bench.records import Record, read_all
from solera.bench.tables import NOT_RUN, Block, Table, activity_table, blocks, main_table, overview_table
from solera.methods import PLUGINS, find
from solera.privacy.figures import Figures, rounds_in_words
from solera.privacy.poisoning.experiment import Outcome
from solera.privacy.poisoning.records import PoisonRecord
from solera.privacy.poisoning.records import read_all as read_poisoning
from solera.privacy.records import AttackRecord
from solera.privacy.records import read_all as read_attacks
from solera.runs.presets import Preset, preset, presets

BLOCK = re.compile(r"<!-- ([a-z ]+)(?:: ([^\n]+?))? -->\n(?:(?!<!-- ).)*<!-- end -->", re.DOTALL)
PROTOCOLS = {"paper": "`paper` (leaky)", "strict": "`strict`"}
METRICS = {"hr": "hr@10", "ndcg": "ndcg@10"}  # a preset's word for it, and a record's
PAIR = "HR@10 / NDCG@10"
NONE_YET = "There are no records yet."
HEADLINE = {  # label: how it is called, and whose published row it has
    "pfedrec": ("PFedRec", "paper:pfedrec/ml-100k"),
    "fedrap": ("FedRAP", "paper:fedrap/ml-100k"),
    "pfedclr": ("PFedCLR", "paper:pfedclr/ml-100k"),
    "fedem": ("FedEM", "paper:fedem/ml-100k"),
    "plgc": ("FedMF with PLGC", "paper:fedmf+plgc/ml-100k"),
    "popularity": ("*popularity*", ""),
    "ease": ("*EASE, centralized*", ""),
    "sasrec": ("*SASRec, centralized*", ""),
    "fedease": ("**FedEASE**, one round", ""),
    "fedhist": ("**FedHist**", ""),
    "fedslist": ("**FedSLIST**, one round", ""),
}

SINGLE = ("touched", "popularity", "norm", "sign", "shadow")  # attacks on single uploads
SUMMED = ("popularity", "sign", "shadow", "shadow+popularity")  # and on sums

OF_WEIGHTS = ("weight-bound", "weights believed")  # poisoning: where clients are weighted by what they claim
EPSILONS = (None, 8.0, 4.0, 1.0)  # None: without differential privacy

Records = Sequence[Record]
Attacks = Sequence[AttackRecord]
Poisonings = Sequence[PoisonRecord]


class Private(NamedTuple):
    """Records of benchmarks/privacy.toml and modes.toml, and what these ask for: data set and label."""

    records: Records
    asked: Sequence[tuple[str, str]]


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check all pages under `root`."""
    check = "--check" in arguments
    records, ablations = read_all(root / "results"), read_all(root / "ablations")
    attacks, poisonings = read_attacks(root / "attacks"), read_poisoning(root / "poisoning")
    private = Private(read_all(root / "privacy"), _asked_for(root / "benchmarks"))
    told = attacks, poisonings, private
    stale = False
    for page in (
        *sorted((root / "docs/methods").glob("*.md")),
        root / "docs/reproduction.md",
        root / "docs/results.md",
        root / "docs/privacy.md",
        root / "README.md",
    ):
        text = page.read_text("utf-8")
        filled = BLOCK.sub(lambda block: fill(block, records, ablations, told), text)
        if filled != text:
            stale = True
            sys.stdout.write(f"{'stale' if check else 'rewritten'}: {page.relative_to(root)}\n")
            if not check:
                page.write_text(filled, "utf-8")
    return int(check and stale)


def fill(
    block: re.Match[str],
    records: Records,
    ablations: Records,
    told: tuple[Attacks, Poisonings, Private],
) -> str:
    """The block with its contents made anew."""
    attacks, poisonings, private = told
    makers: dict[str, Callable[..., str]] = {
        "choices": choices,
        "options": options,
        "plugin options": plugin_options,
        "plugin choices": plugin_choices,
        "presets": preset_table,
        "baseline options": baseline_options,
        "figures": lambda name: figures(name, records),
        "reproduction": lambda *datasets: reproduction(records, datasets),
        "leaderboard": lambda dataset: _grid(main_table, _strict(records), dataset),
        "activity": lambda dataset: _grid(by_activity, _strict(records), dataset),
        "ablation": lambda dataset, first: ablation(ablations, dataset, first),
        "leaky": lambda dataset: _grid(main_table, _leaky(records), dataset),
        "headline": lambda: headline(records),
        "overview": lambda: overview_table(_strict(records)).grid() if _strict(records) else NONE_YET,
        "tuned": tuned,
        "attacks on single uploads": lambda dataset: attacks_on_single(_plain(attacks, dataset)),
        "attacks among touched rows": lambda dataset: attacks_among_touched(_plain(attacks, dataset)),
        "attacks on sums": lambda dataset: attacks_on_sums(_plain(attacks, dataset), "target"),
        "attacks on anybody in a sum": lambda dataset: attacks_on_sums(_plain(attacks, dataset), "anybody"),
        "attacks by mode": lambda dataset: attacks_by_mode(_on(attacks, dataset)),
        "modes": lambda dataset: modes(private, _on(attacks, dataset), dataset),
        "poisoning": lambda dataset: poisoning(_poisoned(poisonings, dataset)),
        "other poisoning": lambda dataset: other_poisoning(_poisoned(poisonings, dataset)),
        "poisoning commands": lambda dataset: attack_commands(_poisoned(poisonings, dataset)),
        "differential privacy": lambda dataset: differential_privacy(private, dataset),
        "attack commands": lambda dataset: attack_commands(_on(attacks, dataset)),
    }
    kind, names = block[1], block[2].split(", ") if block[2] else []
    return f"{block[0].splitlines()[0]}\n\n{makers[kind](*names)}\n\n<!-- end -->"


def choices(*names: str) -> str:
    """The five choices of some methods."""
    made = [(f"`{name}`", find(name).choices) for name in names]
    return table(("method", *made[0][1]), ((name, *each.values()) for name, each in made))


def options(name: str) -> str:
    """A method's options, as `solera methods NAME` shows them."""
    config = find(name).config
    fields = type(config).model_fields
    values = config.model_dump(mode="json").items()
    rows = ((f"`{key}`", f"`{value}`", fields[key].description or "") for key, value in values)
    return table(("`-o`", "default", "about"), rows)


def plugin_choices(name: str, *plugins: str) -> str:
    """The five choices of a method with each of some plug-ins."""
    made = [(f"`{name} --with {plugin}`", find(name, {}, [plugin]).choices) for plugin in plugins]
    return table(("method", *made[0][1]), ((title, *each.values()) for title, each in made))


def plugin_options(*names: str) -> str:
    """The options that plug-ins add to a method's."""
    rows = [
        (f"`{name}`", f"`{key}`", f"`{value}`", PLUGINS[name].config.model_fields[key].description or "")
        for name in names
        for key, value in PLUGINS[name].config().model_dump(mode="json").items()
    ]
    return table(("`--with`", "`-o`", "default", "about"), rows)


def baseline_options(name: str) -> str:
    """A baseline's options, whose descriptions stand below them in its config class."""
    config = BASELINES[name].config
    abouts = dict(_texts_below_fields(config))
    shown = {key: ",".join(map(str, v)) if isinstance(v, tuple) else v for key, v in config()}
    rows = [(f"`{key}`", f"`{value}`", abouts[key]) for key, value in shown.items()]
    return table(("`-o`", "default", "about"), rows) if rows else f"`{name}` has no options."


def _texts_below_fields(config: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for cls in reversed(config.__mro__[: config.__mro__.index(BaseModel)]):
        for parent in ast.parse(inspect.getsource(cls)).body:
            for pair in pairwise(parent.body if isinstance(parent, ast.ClassDef) else []):
                match pair:
                    case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(about))):
                        yield key, about


def preset_table(*names: str) -> str:
    """The presets of published rows: of some methods and plug-ins, or all of them."""
    rows = [
        (f"`{p.name}`", f"`{p.protocol}`", str(p.rounds), _changed(p), _published(p), p.source)
        for p in presets().values()
        if p.published and (not names or {p.method, *p.plugins} & set(names))
    ]
    head = ("preset", "protocol", "rounds", "not the defaults", f"published {PAIR}", "source")
    return table(head, rows) if rows else "There is none."


def _changed(entry: Preset) -> str:
    assert entry.method
    default = find(entry.method, {}, entry.plugins).config.model_dump(mode="json")
    taken = find(entry.method, entry.options, entry.plugins).config.model_dump(mode="json")
    return ", ".join(f"`{key}={taken[key]}`" for key in taken if taken[key] != default[key]) or "none"


def figures(name: str, records: Records) -> str:
    """A preset's published and measured figures, and the commands that make the latter."""
    rows = [("published", _published(preset(name)), "", "")]
    for protocol, label in PROTOCOLS.items():
        runs = _runs(records, name, protocol)
        seeds = ", ".join(map(str, sorted(run.seed for run in runs)))
        rows.append((label, _measured(runs, "sampled99"), _measured(runs, "full"), seeds))
    command = f"solera train --preset {name} --seed S --protocol"
    below = f"Mean ± standard deviation over seeds: `{command} paper` and `{command} strict`."
    seconds = [run.seconds.per_round for run in records if run.preset == name and run.seconds.per_round]
    time = f" Training took {median(seconds):.2g} s a round." if seconds else ""
    return table(("", f"99 negatives, {PAIR}", f"full ranking, {PAIR}", "seeds"), rows) + f"\n\n{below}{time}"


def headline(records: Records) -> str:
    """The published figures, the same with the leak, and what remains without it; HR@10 on ml-100k."""
    rows = []
    for label, (name, source) in HEADLINE.items():
        there = preset(source).published["hr"] if source else None
        leaky = _runs(records, source, "paper") if source else []
        best = _best_on_validation(records, (label, f"{label}, defaults", source))
        rows.append(
            (
                name,
                f"{there:.3f}" if there else "",
                _hr(leaky, "sampled99") if source else "",
                _hr(best, "sampled99"),
                _measured(best, "full"),
            )
        )
    head = ("", "published", "`paper` (leaky)", "`strict`", f"`strict`, whole catalogue: {PAIR}")
    return table(head, rows)


def _best_on_validation(records: Records, labels: Iterable[str]) -> Records:
    """Of a method's runs on ml-100k under strict, those of the settings that are best on validation items."""
    groups = (
        [run for run in records if (run.label, run.dataset, run.protocol) == (label, "ml-100k", "strict")]
        for label in labels
    )
    return max(
        filter(None, groups),
        key=lambda runs: mean(run.figures.validation.full["ndcg@10"] for run in runs),
        default=[],
    )


def _hr(runs: Records, part: str) -> str:
    values = [getattr(run.figures.test, part)["hr@10"] for run in runs]
    return _spread(values) if values else "not measured yet"


def ablation(records: Records, dataset: str, first: str) -> str:
    """One method with and without its parts."""
    runs = [run for run in records if run.label.split("+")[0] == first]
    return _grid(main_table, blocks(runs), dataset)


def _strict(records: Records) -> list[Block]:
    """What was tuned for the leaderboard, data set after data set."""
    return blocks([run for run in records if run.protocol == "strict" and run.label != run.preset])


def _leaky(records: Records) -> list[Block]:
    """Everything under the papers' protocol, data set after data set."""
    return blocks([run for run in records if run.protocol == "paper"])


def _grid(make: Callable[[Block], Table], found: Sequence[Block], dataset: str) -> str:
    """A data set's table, and below it what is missing there."""
    block = next((block for block in found if block.dataset == dataset), None)
    if block is None:
        return NONE_YET
    missing = ", ".join(
        f"`{label}`" + (f" ({why})" if why != NOT_RUN else "") for label, why in block.missing.items()
    )
    below = f"\n\nNot run here: {missing}." if missing else ""
    return make(replace(block, missing={})).grid() + below


def by_activity(block: Block) -> Table:
    """In full ranking."""
    return activity_table(block, "full")


def tuned(dataset: str) -> str:
    """The settings that equal tuning found on a data set."""
    rows = [
        (f"`{p.name}`", ", ".join(f"`{k}={v}`" for k, v in p.options.items()) or "defaults", p.source)
        for p in presets().values()
        if p.name.startswith("strict:") and p.dataset == dataset
    ]
    return table(("preset", "settings", "how"), rows) if rows else NONE_YET


def reproduction(records: Records, datasets: Sequence[str]) -> str:
    """All presets: published, measured under both protocols, and how far from what was published."""
    rows = []
    published = (entry for entry in presets().values() if entry.published)
    for entry in (entry for entry in published if not datasets or entry.dataset in datasets):
        leaky, strict = (_runs(records, entry.name, protocol) for protocol in PROTOCOLS)
        away = (
            mean(run.figures.test.sampled99[metric] for run in leaky) - entry.published[key]
            for key, metric in METRICS.items()
            if leaky and entry.published
        )
        difference = " / ".join(f"{each:+.3f}" for each in away)
        row = (f"`{entry.name}`", _published(entry), _measured(leaky, "sampled99"), difference)
        rows.append((*row, _measured(strict, "sampled99"), _measured(strict, "full")))
    honest = ("`strict`, 99 negatives", "`strict`, full ranking")
    return table(("preset", "published", PROTOCOLS["paper"], "difference", *honest), rows)


def _runs(records: Records, name: str, protocol: str) -> Records:
    return [run for run in records if (run.preset, run.protocol) == (name, protocol)]


def _published(entry: Preset) -> str:
    return " / ".join(f"{entry.published[key]:.3f}" for key in METRICS if entry.published)


def _measured(runs: Records, part: str) -> str:
    each = ([getattr(run.figures.test, part)[metric] for run in runs] for metric in METRICS.values())
    return " / ".join(map(_spread, each)) if runs else "not measured yet"


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


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


SEEN_IN = {  # a mode, and what an attacker sees of it: the start of a record's protection, clients in a sum
    "plain": ("plain", 1),
    "secure aggregation": ("plain", 100),
    "central DP": ("central", None),
    "distributed DP": ("central", None),
    "local DP": ("local", 1),
}


def modes(private: Private, attacks: Attacks, dataset: str) -> str:
    """Mode × attack × utility × bytes × seconds."""
    rows = []
    for where, label in private.asked:
        method, _, mode = label.partition(", ")
        run = next((r for r in private.records if (r.dataset, r.label) == (where, label)), None)
        if where != dataset or mode not in SEEN_IN:
            continue
        start, summed = SEEN_IN[mode]
        record = next((r for r in attacks if r.method == method and r.protection.startswith(start)), None)
        cells = ["not run"] * 3
        if run:
            cells = [_under(run), f"{run.bytes.up / 1000:,.0f}", f"{run.seconds.per_round:.2f}"]
        rows.append((f"`{method}`", mode, best_attack(record, summed) or "–", *cells))
    head = ("", "mode", "attack", PAIR, "kB up per client and round", "seconds per round")
    return table(head, rows) if rows else NONE_YET


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
    return f"{outcome.exposure:.3f} / {outcome.ndcg:.4f}" if outcome else "not run"


def _poisoned(records: Poisonings, dataset: str) -> Poisonings:
    return [record for record in records if record.dataset == dataset]


def attack_commands(attacks: Attacks | Poisonings) -> str:
    """What made the records."""
    lines = "\n".join(record.command for record in attacks)
    return f"```console\n{lines}\n```" if attacks else NONE_YET


def differential_privacy(private: Private, dataset: str) -> str:
    """Full-ranking figures by ε, the noise they took in brackets; and which of the matrix were not run."""
    here = [run for run in private.records if run.dataset == dataset]
    rows = []
    for method in dict.fromkeys(str(run.config["method"]) for run in here):
        mine = {(run.privacy or {}).get("epsilon"): run for run in here if run.config["method"] == method}
        clip = next((f"{run.privacy['clip']:g}" for run in mine.values() if run.privacy), "")
        rounds = next(str(run.config["rounds"]) for run in mine.values())
        rows.append((f"`{method}`", rounds, clip, *(_under(mine.get(epsilon)) for epsilon in EPSILONS)))
    head = ("", "rounds", "clip", *(f"ε = {'∞' if e is None else f'{e:g}'}" for e in EPSILONS))
    done = {run.label for run in here}
    missing = ", ".join(
        f"`{label}`" for where, label in private.asked if where == dataset and label not in done
    )
    below = f"\n\nNot run: {missing}." if missing else ""
    return (table(head, rows) if rows else NONE_YET) + below


def _under(run: Record | None) -> str:
    if run is None:
        return ""
    full = run.figures.test.full
    noise = f" ({run.privacy['noise_multiplier']:.2f})" if run.privacy else ""
    return f"{full['hr@10']:.4f} / {full['ndcg@10']:.4f}{noise}"


def _asked_for(folder: Path) -> list[tuple[str, str]]:
    found = (folder / name for name in ("privacy.toml", "modes.toml"))
    runs = [run for m in found if m.exists() for run in tomllib.loads(m.read_text("utf-8"))["run"]]
    return [(dataset, run["label"]) for run in runs for dataset in run["datasets"]]


def _plain(attacks: Attacks, dataset: str) -> Attacks:
    return [record for record in _on(attacks, dataset) if record.protection == "plain"]


def _on(attacks: Attacks, dataset: str) -> Attacks:
    return [record for record in attacks if record.dataset == dataset]


def _auc(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    titles = list(head)
    cells = ((cell.replace("|", "\\|") for cell in row) for row in (titles, *rows))
    first, *others = ("| " + "| ".join(f"{cell} " if cell else "" for cell in row) + "|" for row in cells)
    return "\n".join((first, "|---" * len(titles) + "|", *others))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parent.parent))
