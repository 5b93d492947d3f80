"""The page against the records it is made from."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from made import Page, write_run

from in_process import solera
from solera.cli import progress
from solera.core.errors import RunError
from solera.report import make_page, read_runs
from solera.report.figures import make_figures
from solera.report.page import FEW, LONG

METRICS = [(kind, metric) for kind in ("full", "sampled99") for metric in ("hr@10", "ndcg@10")]


def page_of(*paths) -> str:
    runs = read_runs(paths)
    return make_page(runs, make_figures(runs))


def test_figures_are_those_of_the_records(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"run{seed}", seed=seed)
    page = Page(page_of(*(tmp_path / f"run{seed}" for seed in range(3))))
    for seed in range(3):
        result = json.loads((tmp_path / f"run{seed}" / "result.json").read_text())
        place = page.rows.index(page.row(f"fedmf · s{seed}"))
        assert page.values[place] == [result["test"][kind][metric] for kind, metric in METRICS]
        assert page.rows[place][1] == f"{result['test']['full']['hr@10']:.4f}"
        assert page.rows[place][-1] == "2 of 3"


def test_costs_by_hand(tmp_path):
    """Rounds of 20 of 20 clients send 1, 2, 3 kB and take 3 kB; the second counts: 1 + 2 + 2·3 = 9 kB."""
    write_run(tmp_path / "run")
    page = Page(page_of(tmp_path / "run"))
    rows = [(row, values) for row, values in zip(page.rows, page.values, strict=True) if row[:1] == ["fedmf"]]
    cells, values = next((row, values) for row, values in rows if row[-1] == "not recorded")
    assert cells[1:4] == ["2.0 kB", "3.0 kB", "9.0 kB"]
    assert values[:3] == [2000.0, 3000.0, 9000.0]
    assert values[4] == 20 * (1000 + 2000 + 3000 + 3 * 3000) / 3
    assert values[-3:] == [0.5, 1.5, 0.75]


def test_convergence_is_the_history(tmp_path):
    write_run(tmp_path / "one", seed=1)
    write_run(tmp_path / "two", seed=2, rounds=5)
    text = page_of(tmp_path / "one", tmp_path / "two")
    [link] = re.findall(r'download="convergence-loss.csv" href="data:text/csv;base64,([^"]+)"', text)
    head, *rows = csv.reader(io.StringIO(base64.b64decode(link).decode()))
    assert head == ["round", "fedmf · s1", "fedmf · s2"]
    for column, name in ((1, "one"), (2, "two")):
        lines = (tmp_path / name / "history.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        found = [float(row[column]) for row in rows if row[column]]
        assert found == pytest.approx(losses, rel=1e-5)


def test_of_many_rows_the_page_has_the_first_and_the_file_all(tmp_path):
    write_run(tmp_path / "long", rounds=LONG + 1)
    text = page_of(tmp_path / "long")
    figure = text.split('id="convergence-loss"')[1].split("</figure>")[0]
    assert figure.count("<tr>") == 1 + FEW + 1
    assert f"… all {LONG + 1} rows are in the file below" in figure
    [link] = re.findall(r'href="data:text/csv;base64,([^"]+)"', figure)
    assert len(base64.b64decode(link).decode().splitlines()) == LONG + 2


def test_a_leaky_run_says_so_in_red_everywhere(tmp_path):
    write_run(tmp_path / "honest")
    write_run(tmp_path / "leaky", method="fedrap", protocol="paper", privacy={"epsilon": 1.0})
    text = page_of(tmp_path / "leaky", tmp_path / "honest")
    page, label = Page(text), "fedrap · paper"
    seen = 0
    for place, (piece, classes) in enumerate(page.texts):
        if label in piece:
            seen += 1
            following, red = page.texts[place + 1]
            marked = "(LEAKY)" in piece and "leaky" in classes
            assert marked or (following == "(LEAKY)" and "leaky" in red), piece
        if "fedmf · strict" in piece:
            assert "leaky" not in classes
    assert seen >= 12  # in every table and every figure's legend
    for _, name, value in page.attributes:
        if label in value and name not in {"href"}:
            assert f"{label} (LEAKY)" in value
    result = json.loads((tmp_path / "leaky" / "result.json").read_text())
    figure = f"{result['test']['full']['hr@10']:.4f}"
    shown = [classes for piece, classes in page.texts if piece == figure]
    assert any("leaky" in classes for classes in shown)
    assert page.texts[[piece for piece, _ in page.texts].index("1 of 2 runs: " + page_warning())][1][-2:] == [
        "leaky",
        "banner",
    ]


def page_warning() -> str:
    from solera.report.page import LEAKY

    return f"{LEAKY}."


def test_an_honest_page_is_not_red(tmp_path):
    write_run(tmp_path / "run")
    assert not [piece for piece, classes in Page(page_of(tmp_path / "run")).texts if "leaky" in classes]


def test_nothing_is_fetched_and_nothing_of_a_record_is_markup(tmp_path):
    write_run(tmp_path / "run", dataset="<img src=http:x onerror=alert(1)>.csv", privacy={"<b>": "</script>"})
    text = page_of(tmp_path / "run")
    page = Page(text)
    assert "http://" not in text and "https://" not in text
    assert "@import" not in text and "url(" not in text
    assert not [tag for tag, _, _ in page.attributes if tag in {"img", "link", "b", "iframe"}]
    for _, name, value in page.attributes:
        if name in {"src", "href", "action"}:
            assert value.startswith(("#", "data:text/csv;base64,")), value


def test_a_data_set_that_is_not_at_hand_leaves_the_page_without_intervals(tmp_path):
    write_run(tmp_path / "run", dataset="no/such/ratings.csv")
    page = Page(page_of(tmp_path / "run"))
    assert any("the data set ratings.csv is not at hand" in piece for piece, _ in page.texts)
    assert not any("no/such" in piece for piece, _ in page.texts)  # no path of the machine


def test_an_unfinished_run_shows_its_rounds(tmp_path):
    write_run(tmp_path / "run", finished=False)
    page = Page(page_of(tmp_path / "run"))
    assert page.row("fedmf")[-1] == "unfinished: 3 of 3"
    assert ("id", "convergence-loss") in [(name, value) for _, name, value in page.attributes]


def test_losses_that_are_no_numbers_leave_a_gap(tmp_path):
    write_run(tmp_path / "run", rounds=4)
    path = tmp_path / "run" / "history.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["loss"], lines[2]["loss"] = float("nan"), float("inf")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = next(f for f in make_figures(read_runs([tmp_path / "run"]))["convergence"] if "loss" in f.name)
    assert [row[0] for row in figure.rows] == [1, 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda result: result.pop("users"), "result.json is not valid: users: Field required"),
        (
            lambda result: result["test"]["full"].pop("hr@10"),
            "test.full: Value error, the result has no hr@10",
        ),
        (lambda result: result.update(looser=9), "looser: Extra inputs are not permitted"),
        (lambda result: result.update(selected_round=9), "the history ends before the selected round"),
    ],
)
def test_a_record_that_lacks_something_is_an_error(tmp_path, change, said):
    result = write_run(tmp_path / "run")
    change(result)
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    with pytest.raises(RunError, match=re.escape(said)):
        read_runs([tmp_path / "run"])


def test_privacy_is_shown_where_it_is_stated(tmp_path):
    write_run(tmp_path / "plain", seed=1)
    write_run(tmp_path / "dp", seed=2, privacy={"epsilon": 2.5, "unit": "user", "attack": {"auc": 0.75}})
    alone = page_of(tmp_path / "plain")
    assert 'id="privacy"' not in alone
    page = Page(page_of(tmp_path / "plain", tmp_path / "dp"))
    assert page.row("epsilon") == ["epsilon", "2.5"]
    assert page.row("attack.auc") == ["attack.auc", "0.75"]


def test_differences_of_settings_are_marked(tmp_path):
    write_run(tmp_path / "one", rounds=3)
    write_run(tmp_path / "two", rounds=4)
    page = Page(page_of(tmp_path / "one", tmp_path / "two"))
    marked = {row[0] for row, kind in zip(page.rows, page.row_classes, strict=True) if kind == "differs"}
    assert marked == {"rounds"}
    assert ["rounds", "3", "4"] in page.rows


def test_runs_that_look_alike_are_told_apart(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name)
    labels = [run.label for run in read_runs([tmp_path / "one", tmp_path / "two", tmp_path / "one"])]
    assert labels == ["fedmf · one", "fedmf · two"]


def test_ten_runs_of_a_hundred_rounds_are_small(tmp_path):
    for seed in range(10):
        write_run(tmp_path / f"run{seed}", seed=seed, rounds=100)
    text = page_of(*(tmp_path / f"run{seed}" for seed in range(10)))
    assert len(text.encode()) < 5_000_000
    assert text == page_of(*(tmp_path / f"run{seed}" for seed in range(10)))  # the same runs, the same file


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return solera("report", *args)


def test_the_command_writes_the_page_and_its_figures(tmp_path):
    write_run(tmp_path / "run", protocol="paper")
    output = tmp_path / "new" / "page.html"
    done = command(str(tmp_path / "run"), "-o", str(output), "--figures", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["runs"][0]["leaky"] is True
    names = re.findall(r'<figure id="([^"]+)"', output.read_text(encoding="utf-8"))
    files = {path.name for path in (tmp_path / "new" / "page-figures").iterdir()}
    assert files == {f"{name}.{suffix}" for name in names for suffix in ("svg", "csv")}
    assert "headline-full-leaky.svg" in files
    svg = (tmp_path / "new" / "page-figures" / "headline-full-leaky.svg").read_text(encoding="utf-8")
    assert "(LEAKY)" in svg and "var(" not in svg


def test_a_report_says_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    write_run(tmp_path / "run")
    done = solera("report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"))
    lines = done.stderr.splitlines()
    assert lines[0].startswith("report · read ")
    titles = [
        figure.title for some in make_figures(read_runs([tmp_path / "run"])).values() for figure in some
    ]
    assert " ".join(lines[-len(titles) :]) == " ".join(f"report · drew {title}" for title in titles)


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    done = command(str(tmp_path), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 2
    assert "contains no run" in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_the_documents_figure_is_one(tmp_path):
    """What the guide says makes a figure does: 20 clients in each of 3 rounds."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "reports.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0], names)
    write_run(tmp_path / "run")
    (figure,) = names["clients"](read_runs([tmp_path / "run"]))
    assert figure.rows == [[1, 20], [2, 20], [3, 20]]
