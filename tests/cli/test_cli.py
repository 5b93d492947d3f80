"""The command line as a user meets it: two streams and an exit code; real processes where one is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console
from rich.text import Text
from typer.main import get_command

from in_process import solera
from solera.cli import app
from solera.cli.device_import import Format
from solera.cli.lazy import subcommands
from solera.cli.options import Protocol
from solera.cli.output import Table
from solera.cli.renamed import COMMANDS, with_new_names
from solera.device.importers import READERS
from solera.evaluate import PROTOCOLS

NEEDS_DATA = pytest.mark.skipif(
    not os.environ.get("SOLERA_DATA"),
    reason="SOLERA_DATA is not set: it names the folder that holds the data sets",
)
FAST = ("-o", "local_epochs=1", "--threads", "1")


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """A small file of one's own: 30 users, 40 items."""
    draw = random.Random(0)
    lines = ["who,what,when"]
    for user in range(30):
        for item in draw.sample(range(40), 8 + user % 5):
            lines.append(f"u{user},i{item},{len(lines)}")
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


OWN = ("--columns", "user=who,item=what,time=when")


@pytest.mark.parametrize(
    ("args", "message", "next_step"),
    [
        (
            ("train", "ease", "--data", "ml-100k", "--rounds", "5"),
            "--rounds is for federated methods, and ease is none",
            "omit it",
        ),
        (("train", "ease", "--data", "ml-100k", "--out", "x"), "--out is for federated methods", "omit it"),
        (("train", "fedfm", "--data", "x.csv"), "unknown method 'fedfm'", "did you mean 'fedmf'?"),
        (("train", "fedmf", "--data", "ml-10k"), "unknown data set 'ml-10k'", "did you mean 'ml-100k'?"),
        (("train", "fedmf", "--data", "no/such.csv"), "no/such.csv", "give a"),
        (
            ("train", "fedmf", "--data", "ml-100k", "-o", "leaning_rate=1"),
            "no option 'leaning_rate'",
            "learning_rate",
        ),
        (
            ("train", "fedmf", "--data", "ml-100k", "-o", "negatives=0"),
            "negatives: Input should be",
            "solera methods",
        ),
        (
            ("train", "fedmf", "--data", "ml-100k", "-o", "negatives"),
            "'negatives' is not of the form",
            "write -o",
        ),
        (
            ("train", "fedmf", "--data", "ml-100k", "--protocol", "papers"),
            "'--protocol': 'papers' is not one of 'strict', 'paper', 'global-time', 'cold-items'",
            "solera train --help",
        ),
        (
            ("train", "fedmf", "--data", "ml-100k", "--precision", "half"),
            "'--precision': 'half' is not one of 'single', 'double'",
            "solera train --help",
        ),
        (("train", "fedmf"), "the data set is missing", "--data ml-100k"),
        (("train", "--data", "ml-100k"), "the method is missing", "solera train fedmf"),
        (("train", "--preset", "paper:fedrp/ml-100k"), "unknown preset", "'paper:fedrap/ml-100k'?"),
        (
            ("train", "fedmf", "--preset", "paper:fedrap/ml-100k"),
            "has the method 'fedrap', not 'fedmf'",
            "omit the method or the preset",
        ),
        (
            ("train", "--preset", "paper:fedrap/ml-100k", "--plugin", "plgc"),
            "has the plugins [], not ['plgc']",
            "omit --plugin or the preset",
        ),
        (
            ("train", "fedmf", "--data", "ml-100k", "--plugin", "elastic"),
            "unknown plug-in",
            "'elastic-merge'",
        ),
        (("train", "local", "--data", "ml-100k", "--plugin", "plgc"), "plgc", "method"),
        (
            ("train", "fedmf", "--rounds", "0", "--data", "ml-100k"),
            "--rounds",
            "solera train --help",
        ),
        (("recommend", "no-such-run", "--user", "1"), "no-such-run does not exist", "solera fit"),
        (("train", "ease", "--data", "x"), "unknown data set 'x'", "known:"),
        (
            ("train", "eas", "--data", "x"),
            "unknown method 'eas'",
            "did you mean 'ease'?",
        ),
        (("device", "import", "d", "leterboxd", "x"), "'leterboxd' is not one of 'letterboxd'", "--help"),
        (("data", "audit", "ml-100k", "--protocol", "x"), "'x' is not one of 'strict'", "audit --help"),
        (("train", "mf", "--data", "x", "-o", "epoch=9"), "epoch: no such option", "epochs=100"),
        (("data", "audit", "ml-10k"), "unknown data set 'ml-10k'", "'ml-100k'?"),
        (("learn",), "No such command 'learn'", "--help"),
        (("reccommend", "x"), "No such command 'reccommend'. Did you mean 'recommend'?", "solera --help"),
        (
            ("train", "fedmf", "--round", "3"),
            "No such option '--round'. Did you mean '--rounds'?",
            "train --help",
        ),
    ],
)
def test_wrong_input_is_one_line_and_a_next_step(args, message, next_step, tmp_path):
    done = solera(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert error.count("Did you mean") <= 1
    assert "Value error" not in error
    assert hint.startswith("next: ")
    assert next_step in hint
    assert not list(tmp_path.iterdir())


def test_what_can_be_chosen_is_what_the_library_knows():
    known: dict[Any, Any] = {
        Protocol: PROTOCOLS,
        Format: READERS,
    }
    for choices, names in known.items():
        assert sorted(get_args(choices)) == sorted(names)


def test_a_malformed_file_is_named_with_its_line(ratings):
    lines = ratings.read_text().splitlines()
    lines[5] = "u1,i2"
    ratings.write_text("\n".join(lines))
    done = solera("train", "fedmf", "--data", str(ratings), *OWN)
    assert done.returncode == 2
    assert "line 6" in done.stderr.splitlines()[0]


def test_a_user_with_too_few_interactions_is_named(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("user,item\n" + "".join(f"a,{i}\n" for i in range(9)) + "b,1\nb,2\n")
    done = solera("train", "fedmf", "--data", str(path), "--min-interactions", "0")
    assert done.returncode == 2
    assert "'b'" in done.stderr
    assert "--min-interactions" in done.stderr


def test_an_error_as_json_is_one_object_too(tmp_path):
    done = solera("train", "fedfm", "--data", "ml-100k", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["next"] == "did you mean 'fedmf'?"


def test_traceback_only_when_asked(tmp_path):
    assert "Traceback" not in solera("train", "fedfm", "--data", "x", cwd=tmp_path).stderr
    command = [sys.executable, "-m", "solera", "--traceback", "device", "status", "x"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Traceback" in done.stderr


def test_from_a_file_to_recommendations(ratings, tmp_path):
    done = solera(
        "train", "fedmf", "--data", str(ratings), *OWN, "--rounds", "3", *FAST, "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rounds"] == 3
    assert not result["leaky"]
    folder = tmp_path / result["out"]
    assert json.loads((folder / "result.json").read_text())["test"] == result["test"]
    listed = solera("recommend", str(folder), "--user", "u3", "-k", "4", "--json")
    assert len(json.loads(listed.stdout)["items"]) == 4
    several = solera("recommend", str(folder), "--user", "u3", "--user", "u4", "-k", "4", "--json")
    both = json.loads(several.stdout)["users"]
    assert [each["user"] for each in both] == ["u3", "u4"]
    assert both[0]["items"] == json.loads(listed.stdout)["items"]
    newcomer = solera("recommend", str(folder), "--history", "i1, i2", "--without", "i3", "-k", "4", "--json")
    assert not {"i1", "i2", "i3"} & {each["item"] for each in json.loads(newcomer.stdout)["items"]}
    written = solera("recommend", str(folder), "--all", "-o", str(tmp_path / "all.csv"))
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "all.csv").read_text().startswith("user,rank,item,title,score\n")
    for wrong in (("--all",), ("--all", "--user", "u3"), ()):
        assert solera("recommend", str(folder), *wrong).returncode == 2
    alike = solera("recommend", str(folder), "--like", "i1", "-k", "3")
    assert "Like i1" in alike.stdout
    stranger = solera("recommend", str(folder), "--user", "u99")
    assert stranger.returncode == 2
    assert "unknown user 'u99'" in stranger.stderr


def test_the_same_command_again_makes_a_new_folder_but_never_overwrites(ratings, tmp_path):
    command = ("train", "local", "--data", str(ratings), *OWN, "--rounds", "1", *FAST, "--json")
    folders = {json.loads(solera(*command, cwd=tmp_path).stdout)["out"] for _ in range(2)}
    assert len(folders) == 2
    out = next(iter(folders))
    refused = solera(*command[:-1], "--rounds", "2", "--out", out, "--data", "no-such-file.csv", cwd=tmp_path)
    assert refused.returncode == 2
    assert "contains another run" in refused.stderr  # before anything is loaded
    assert "--resume" not in refused.stderr
    again = solera(*command[:-1], "--out", out, cwd=tmp_path)
    assert (again.returncode, "contains this run already" in again.stderr) == (2, True)


def test_every_table_of_a_leaky_run_says_so(ratings, tmp_path):
    common = ("--data", str(ratings), *OWN, "--protocol", "paper")
    trained = solera("train", "local", *common, "--rounds", "1", *FAST, "--out", str(tmp_path / "run"))
    shown = solera("recommend", str(tmp_path / "run"), "--user", "u3")
    baseline = solera("train", "popularity", *common)
    audited = solera("data", "audit", str(ratings), *OWN, "--protocol", "paper")
    for done in (trained, shown, baseline, audited):
        assert done.returncode == 0, done.stderr
        assert "LEAKY" in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text())["leaky"] is True
    strict = solera("train", "popularity", "--data", str(ratings), *OWN)
    assert "LEAKY" not in strict.stdout


def test_json_of_every_other_command(ratings):
    methods = json.loads(solera("methods", "--json").stdout)
    assert {"fedmf", "pfedrec", "local"} <= {method["name"] for method in methods}
    assert {"name", "scorer", "view", "loss", "update", "aggregate", "paper"} == set(methods[0])
    assert (
        json.loads(solera("methods", "pfedrec", "--json").stdout)["options"][0]["option"] == "embedding_size"
    )
    sets = {entry["name"]: entry for entry in json.loads(solera("data", "show", "--json").stdout)}
    assert {"ml-100k", "pinterest"} <= set(sets)
    assert "no redistribution" in sets["ml-100k"]["licence"]["terms"]
    listed = solera("data", "show").stdout
    assert all(entry["licence"]["page"] in listed for entry in sets.values())  # in one piece
    stats = json.loads(solera("data", "show", str(ratings), *OWN, "--json").stdout)
    assert (stats["users"], stats["items"]) == (30, 40)
    audit = json.loads(solera("data", "audit", str(ratings), *OWN, "--json").stdout)
    assert list(audit) == ["paper", "strict"]
    assert {"rows", "distinct_pairs", "users", "items", "test_in_train"} <= set(audit["paper"])
    assert (
        json.loads(solera("train", "ease", "--data", str(ratings), *OWN, "--json").stdout)["method"] == "ease"
    )
    assert "problems" in json.loads(solera("doctor", "--json").stdout)


def commands(command, *path: str):
    """Every command that does something, with the words that call it."""
    below = subcommands(command)
    if not below:
        yield path, command
    for name, each in below.items():
        yield from commands(each, *path, name)


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands(get_command(app))]
)
def test_help_has_an_example_and_loses_nothing(path, command):
    """What stands in brackets could be taken for colours."""
    assert f"Example: solera {' '.join(path)}" in " ".join(command.help.split())
    for text in (command.help, *(one.help or "" for one in command.params)):
        assert Text.from_markup(text).plain == text


def test_help_of_the_program_and_of_a_command():
    assert "Train and look" in solera().stdout
    done = solera("bench", "run", "--help")
    assert done.returncode == 0
    assert "Example: solera bench run" in " ".join(done.stdout.split())


def rounds_of(history: Path) -> list[str]:
    """The finished rounds of a run, one line each."""
    lines = history.read_text().splitlines(keepends=True) if history.exists() else []
    return [line for line in lines if line.endswith("\n")]


MEASURED = {"seconds_per_round", "seconds_to_test", "peak_bytes"}


def figures(folder: Path) -> dict:
    result = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in result.items() if key not in MEASURED}


@NEEDS_DATA
@pytest.mark.parametrize(
    ("method", "kills"),
    [("fedmf", 1), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("fedmf", "pfedrec"))],
)
def test_kill_at_a_random_moment_then_resume(method, kills, tmp_path):
    """kill -9 at random moments of some rounds; the end is as if nothing had happened."""
    command = ["train", method, "--data", "ml-100k", "--rounds", f"{2 + 2 * kills}", *FAST]
    whole = solera(*command, "--out", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    seed = random.SystemRandom().randrange(10**6)
    print("kill moments from seed", seed)
    draw = random.Random(seed)
    resume = [sys.executable, "-m", "solera", *command, "--out", str(tmp_path / "cut"), "--resume"]
    history = tmp_path / "cut" / "history.jsonl"
    for _ in range(kills):
        wanted = len(rounds_of(history)) + draw.randint(1, 2)
        process = subprocess.Popen(resume, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 180
        while len(found := rounds_of(history)) < wanted:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(draw.random() * sum(json.loads(found[-1])["seconds"].values()))  # somewhere in the next
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    ended = solera(*resume[3:])
    assert ended.returncode == 0, ended.stderr
    assert figures(tmp_path / "cut") == figures(tmp_path / "whole")


@NEEDS_DATA
def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path):
    command = [
        sys.executable,
        "-m",
        "solera",
        "train",
        "fedmf",
        "--data",
        "ml-100k",
        "--rounds",
        "500",
        *FAST,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 180
    while not any(map(rounds_of, tmp_path.glob("runs/*/history.jsonl"))) and time.monotonic() < deadline:
        time.sleep(0.1)  # to the end of the first round: before it, Ctrl-C has nothing to wait for
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping after this round" in said
    assert "stopped after round" in said
    assert "--resume" in said
    assert said.count("error:") == 1
    folder = next(tmp_path.glob("runs/*"))
    assert list(folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("solera train pfed", {"pfedrec", "pfedclr", "pfedgraph"}),
        ("solera train fedmf --data ml-", {"ml-100k", "ml-1m"}),
        ("solera train fedmf --plugin elastic", {"elastic-merge"}),
        ("solera train --preset paper:fedr", {"paper:fedrap/ml-100k"}),
        ("solera train fedmf --protocol st", {"strict"}),
        ("solera data show film", {"filmtrust"}),
    ],
)
def test_what_the_shell_offers(typed, offered):
    """As bash asks for it when Tab is pressed."""
    words = typed.split()
    asked = {"_SOLERA_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    command = [str(Path(sys.executable).parent / "solera")]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert offered <= set(done.stdout.split()), done.stderr


def test_a_narrow_terminal_breaks_no_figure(monkeypatch, capsys):
    """Long labels are broken at words, names not at all where another column can be broken."""
    narrow = Console(width=60)
    monkeypatch.setattr("solera.cli.output.out", narrow)
    label = "test with validation item, full ranking, and more"
    Table("figures", ("", *(f"ndcg@{k}" for k in (5, 10, 20))), [(label, 0.1234, 0.2345, 0.3456)]).print()
    printed = capsys.readouterr().out
    assert {"0.1234", "0.2345", "0.3456", "ndcg@10"} <= set(printed.split())
    assert set(label.split()) <= set(printed.split())
    Table("methods", ("name", "about"), [("a-long-name-of-a-method", "word " * 20)]).print()
    assert "a-long-name-of-a-method" in capsys.readouterr().out


def test_former_names_work_with_a_warning(tmp_path):
    """Of commands and of options."""
    now, before = solera("methods", "--presets", "--json"), solera("presets", "--json")
    assert before.stdout == now.stdout
    assert before.stderr == "warning: presets is now methods --presets\n"
    (tmp_path / "nothing.py").write_text("")
    listed = solera("--methods-file", tmp_path / "nothing.py", "data", "list", "--json")
    assert listed.stderr.splitlines() == [
        "warning: --methods-file is now --import",
        "warning: data list is now data show",
    ]
    assert listed.stdout == solera("data", "show", "--json").stdout


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("train x --at 5 --with y", "train x --cutoffs 5 --plugin y"),
        ("baseline ease --data x --at=5,10", "train ease --data x --cutoffs=5,10"),
        ("similar runs/x -k 5 i1 --json", "recommend runs/x --like i1 -k 5 --json"),
        ("bundle vectors x.bundle -o v.json", "bundle show x.bundle --vectors v.json"),
        ("bundle export run -o x.bundle", "bundle export run -o x.bundle"),
        ("device back me", "device update --back me"),
        ("device watch me x.db --every 60", "device import me jellyfin x.db --watch 10 --watch 60"),
        ("device remove me 1 2 --yes", "device forget me 1 2 --yes"),
        ("device token create me x --scope add", "device token me --create x --scope add"),
        ("device token --user ann create", "device token --user ann create"),
        ("device token revoke --json me 3", "device token me --revoke 3 --json"),
        ("device policy me --no-plain", "device policy me --no-allow-plain"),
        ("--traceback --import x.py data stats y", "--traceback --import x.py data show y"),
        ("data stats", "data show"),
        ("similar", "recommend --like"),
        ("report data list", "report data list"),
    ],
)
def test_former_commands_are_put_into_words_of_today(former, now):
    assert with_new_names(former.split()) == now.split()


def test_every_former_command_leads_to_one_that_is_there():
    now = {" ".join(path) for path, _ in commands(get_command(app))}
    for former, found in COMMANDS.items():
        assert former not in now
        assert any(f"{found.words} ".startswith(f"{path} ") for path in now), found


def test_no_colour_where_none_is_wanted():
    """On a terminal of its own, which would have colours otherwise."""
    codes = {}
    for wanted in ("", "1"):
        ours, theirs = os.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"}
        environment |= {"NO_COLOR": wanted} if wanted else {}
        command = [sys.executable, "-m", "solera", "device", "status", "x"]
        subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=False)
        os.close(theirs)
        codes[wanted] = os.read(ours, 4096)
        os.close(ours)
    assert b"\x1b[1;31merror:" in codes[""]
    assert b"31m" not in codes["1"] and b"error:" in codes["1"]
