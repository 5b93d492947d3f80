from __future__ import annotations

import json
from pathlib import Path

import pytest
from planted import blocks

from in_process import solera
from solera.baselines import BASELINES, Epoch, configure
from solera.baselines.ncf import NCFConfig
from solera.core.errors import ConfigError
from solera.runs import RunResult
from solera.runs.baseline import run_baseline


@pytest.mark.parametrize(
    ("name", "options", "said", "hint"),
    [
        ("eas", {}, ["unknown baseline 'eas'"], "did you mean 'ease'?"),
        ("?", {}, ["unknown baseline"], f"known: {', '.join(BASELINES)}"),
        ("popularity", {"reg": 1}, ["reg: no such option"], "leave -o out"),
        ("ease", {"reg": 0, "rge": 1}, ["reg: Input should be", "rge: no such option"], "reg=500.0"),
        ("mf", {"epoch": 3, "negatives": 0}, ["epoch: no such", "negatives: Input should"], "epochs=100"),
        ("ncf", {"hidden": "8,0", "reg": "x"}, ["hidden: ", "reg: "], "hidden=32,16,8"),
        ("ncf", {"hidden": ""}, ["hidden: "], "hidden=32,16,8"),
        ("lightgcn", {"layers": -1}, ["layers: "], "layers=3"),
        ("centrap", {"reg": "nan", "lambda": 1}, ["reg: ", "lambda: no such"], "independence="),
        ("sasrec", {"heads": 3}, ["heads: ", "3 does not divide embedding_size=64"], "heads=2"),
        ("sasrec", {"embedding_size": 0, "dropout": 1}, ["embedding_size: ", "dropout: "], "max_length=50"),
        ("sasrec", {"loss": "bce"}, ["loss: "], "loss=softmax"),
        ("hstu", {"request_time": "true"}, ["request_time: ", "needs time=intervals"], "time=none"),
        ("slist", {"until_next": "true"}, ["'slist': least_weight and until_next need"], "decays="),
        ("ials", {"factors": 8}, ["factors: no such option"], "embedding_size=32"),
    ],
)
def test_wrong_names_and_options(name: str, options: dict[str, object], said: list[str], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(name, options)
    assert all(part in caught.value.message for part in said), caught.value.message
    assert hint in caught.value.hint


def test_widths_as_the_command_line_has_them() -> None:
    assert configure("ncf", {"hidden": "24,6"}) == NCFConfig(hidden=(24, 6))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_gives_the_same_kind_of_result(name: str) -> None:
    if name == "ials":
        pytest.importorskip("implicit")
    fields = BASELINES[name].config.model_fields
    short: dict[str, object] = {each: "2" for each in ("epochs", "rounds") if each in fields}
    seen: list[Epoch] = []
    result = run_baseline(name, blocks(), seed=3, options=short, on_epoch=seen.append).result
    assert result.method == name
    assert result.options == configure(name, short).model_dump(mode="json")
    assert [(epoch.done, epoch.epochs) for epoch in seen] == ([(1, 2), (2, 2)] if short else [])
    assert 0 <= result.test.full["hr@10"] <= 1
    assert RunResult.model_validate(json.loads(json.dumps(result.document()))) == result


def test_every_baseline_is_listed() -> None:
    shown = solera("methods").stdout.replace(",", " ").split()
    assert [name for name in BASELINES if name not in shown] == []


def test_progress_goes_to_standard_error_and_one_document_to_standard_output(tmp_path: Path) -> None:
    data = blocks()
    rows = [f"u{u},i{i},{t}" for t, (u, i) in enumerate(zip(data.users, data.items, strict=True))]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    done = solera("train", "mf", "--data", str(path), "-o", "epochs=2", "-o", "negatives=1", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["options"]["epochs"], result["options"]["negatives"]) == (2, 1)
    assert "mf on own · epoch 2/2 · loss 0." in done.stderr
