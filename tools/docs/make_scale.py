"""Write docs/results/scale.md and its pictures from the records in experiments/records/scale.parquet.

python tools/docs/make_scale.py            write them
python tools/docs/make_scale.py --check    change nothing; exit 1 and name what is stale
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks import scale
from blocks.markdown import NONE_YET, folded
from blocks.scale_pictures import pictures

from solera_research.scale.fit import models
from solera_research.scale.forecast import Limits
from solera_research.scale.records import read_all

RECORDS = Path("experiments/records/scale.parquet")
PAGE = Path("docs/results/scale.md")
IMAGES = Path("docs/images")


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check the page and the pictures under `root`."""
    records = read_all(root / RECORDS)
    drawn = pictures(records)
    wanted = {IMAGES / f"{name}.svg": picture for name, (_, picture) in drawn.items()}
    wanted[PAGE] = page(records, {name: text for name, (text, _) in drawn.items()})
    old = {path.relative_to(root) for path in (root / IMAGES).glob("scale-*.svg")} - set(wanted)
    stale = [path for path, text in wanted.items() if _read(root / path) != text] + sorted(old)
    for path in stale:
        sys.stdout.write(f"{'stale' if '--check' in arguments else 'rewritten'}: {path}\n")
        if "--check" not in arguments:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if path in old:
                (root / path).unlink()
            else:
                (root / path).write_text(wanted[path], encoding="utf-8")
    return int("--check" in arguments and bool(stale))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def page(records: scale.Records, drawn: Mapping[str, str]) -> str:
    """The whole page."""

    def shown(*names: str) -> str:
        return "\n\n".join(f"![{drawn[name]}](../images/{name}.svg)" for name in names if name in drawn)

    limits, target = Limits(), scale.TARGET
    parts = [
        "# Scale, measured",
        "<!-- Made by tools/docs/make_scale.py from experiments/records/scale. Do not edit. -->",
        """What training costs against users, items and ranks, and what it would cost at sizes nobody has
run. [Scale](../guides/scale.md) has the commands for large data.""",
        """```console
solera bench scale              # measure the missing points, one record each
solera bench predict --check    # the largest points, predicted from the smaller ones
python tools/docs/make_scale.py # this page
```""",
        """Every point is one `solera train` in processes of its own, on data of `solera data synthesize`
with about 20 interactions per user. Trained methods run 10 rounds of 10,000 clients (2,000 of 10,000
users), validate 2,000 users after rounds 5 and 10, and rank all items for all users at the end. Other
options have their defaults. Ten rounds are too few for good recommendations: quality is shown to see that
the runs learn.""",
        scale.machines(records),
        scale.missing(records),
        "## In short",
        scale.in_short(records),
        """The largest point of each method, and the throughput of two ranks against one process, with one
thread each, at 1e5 users and 1e5 items.""",
        "## Time",
        folded("All points", scale.time(records)),
        """Seconds of a round are the median and include the server. The test ranks every item for every
user. Start and end are the start of Python, loading, splitting, the estimate, and writing the model.""",
        shown(
            "scale-time-users", "scale-time-items", "scale-round-users", "scale-round-items", "scale-ranks"
        ),
        "## Where the time goes",
        shown("scale-parts") or NONE_YET,
        "## Memory, traffic and quality",
        folded("All points", scale.memory(records)),
        """`solera train --plan` estimates memory and time before a run. It does not know of several ranks.
Down and up are of one client in one round. NDCG@10 is on test items, beside that of the popularity
baseline.""",
        shown("scale-memory-users", "scale-memory-items"),
        "## Cost model",
        """Every figure is a sum of unit costs times sizes. They are fitted to the records of a method by
least squares of relative errors; [fit.py](../../research/src/solera_research/scale/fit.py) has the terms.
d is the embedding size.""",
        folded("Unit costs", scale.unit_costs(models(records).values()) if records else NONE_YET),
        "### Predicted and measured",
        """Each method's largest point, predicted by a model that was fitted without it. Rows of clients above
2 GiB are in mapped files, which the model of the memory does not know: it says too much of methods that keep
rows.""",
        folded("All predictions", scale.checked(records)),
        shown("scale-predicted"),
        f"## {target.users:,.0f} users and {target.items:,.0f} items",
        f"""```console
solera bench predict --users 1e8 --items 1e7 --clients 1e5 --ranks {target.ranks} --rounds {target.rounds}
```""",
        f"""A round of {target.clients:,.0f} clients on {target.ranks} ranks with one core each. Closed forms
have one round with all users, on one rank. These are predictions far beyond every measured point: read them
as orders of magnitude. Limits:
{limits.download_mb:g} MB down per client, as for a phone; {limits.device_mb:g} MB of state on a device;
{limits.memory_gb:g} GB per rank; {limits.round_minutes:g} minutes a round. `--limit` and `--price` set
others.""",
        scale.predicted(records, limits),
        "### All methods by their definition",
        """What follows from the number of numbers alone, for all methods with their default options,
measured or not.""",
        folded("All methods", scale.formulas(limits)),
        """Methods that send the whole table to every client stop at the download. Closed forms stop at the
pairs of items. Methods with a table per client stop at the server: its tables grow with users × items, its
comparisons with the square of the clients in a round.""",
        "## What this does not show",
        """- All ranks were on one machine. The network between machines is in no measured time.
- The item tables are on every rank.
- Clients of a real federation are slower than these cores, and some do not answer.
- Each point was run once. Its figures include whatever else the machine did.""",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
