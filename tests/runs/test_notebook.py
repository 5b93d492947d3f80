"""Progress and figures in a real notebook kernel."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from solera.runs import RunResult
from solera.runs.callbacks import in_notebook

RATINGS = """
import random
draw = random.Random(0)
pairs = [(u, i) for u in range(30) for i in draw.sample(range(40), 8)]
rows = "".join(f"{u},{i},{t}\\n" for t, (u, i) in enumerate(pairs))
open("ratings.csv", "w").write("user,item,time\\n" + rows);
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    cells = [
        RATINGS,
        "import solera",
        'run = solera.train("fedmf", "ratings.csv", rounds=3, threads=1)',
        "run",
    ]
    cells.append(
        'solera.train("fedmf", "ratings.csv", rounds=1, threads=1, progress=False).test["full"]["hr@10"]'
    )
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    updates = []

    class Watched(NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] == "update_display_data":
                updates.append(msg["content"]["data"]["text/html"])
            return super().process_message(msg, cell, cell_index)

    folder = tmp_path_factory.mktemp("notebook")
    Watched(made, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return made, updates


def test_progress_goes_from_round_to_round_and_then_away(notebook):
    _, updates = notebook
    assert [f"round {n}/3" in text for n, text in enumerate(updates[:3], start=1)] == [True] * 3
    assert '<progress value="3" max="3">' in updates[2]
    assert updates[3] == "" and len(updates) == 4  # with progress=False there is none


def test_a_run_shows_its_figures(notebook):
    made, _ = notebook
    shown = made.cells[3].outputs[0]["data"]["text/html"]
    assert "fedmf on ratings, protocol strict, seed 0" in shown
    assert shown.count("<td>") == 6 * 5


def test_a_leaky_one_says_so():
    figures = dict.fromkeys(("hr@10", "ndcg@10", "mrr@10", "hr@20", "ndcg@20"), 0.25)
    part = {"full": figures, "sampled99": figures}
    honest = RunResult.model_validate(
        {
            "format": 2,
            "method": "fedmf",
            "dataset": "<d>",
            "protocol": "paper",
            "leaky": False,
            "seed": 1,
            "users": 2,
            "items": 3,
            "evaluated_users": 2,
            "test": part,
            "validation": part,
            "options": {},
        }
    )
    assert "LEAKY" in honest.model_copy(update={"leaky": True})._repr_html_()
    assert "LEAKY" not in honest._repr_html_()
    assert "&lt;d&gt;" in honest._repr_html_()
    assert "0.2500" in honest._repr_html_()


def test_here_is_no_notebook():
    assert not in_notebook()
