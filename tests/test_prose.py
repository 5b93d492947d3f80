"""The check of prose: what it reads, what it reports, and allowances that only shrink."""

from __future__ import annotations

import json

import pytest

from programs import program

LONG = "word " * 40 + "end.\n"


@pytest.fixture(scope="module")
def prose():
    return program("prose")


@pytest.fixture
def project(tmp_path):
    """A root with three short pages, no page in docs and no allowance."""
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        (tmp_path / name).write_text("# Title\n\nA short sentence.\n")
    for folder in ("docs", "tools"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tools" / "prose.json").write_text("{}")
    return tmp_path


def test_our_pages_pass(prose, capsys):
    assert prose.main([]) == 0, capsys.readouterr().out


def test_sentences_have_lines_and_words(prose):
    text = "# A heading. Not counted\n\nOne two three. Four\nfive (six.) Seven `a b c` eight.\n\n"
    text += "- nine\n- ten et al. 2024\n"
    assert [(line, words) for line, words, _ in prose.sentences(text)] == [
        (3, 3),
        (3, 3),
        (4, 3),
        (6, 1),
        (7, 4),
    ]


@pytest.mark.parametrize(
    "unchecked",
    [
        f"```text\n{LONG}is none\n```",
        f"| {LONG.strip()} is none |",
        f"<!-- leaderboard: x -->\n\n{LONG}is none\n\n<!-- end -->",
        f"<!-- run by a test: {LONG}is none -->",
        f"`{LONG.strip()} is none`",
    ],
    ids=["code", "table", "generated", "comment", "inline"],
)
def test_code_tables_and_generated_blocks_are_not_read(prose, unchecked):
    assert prose.problems("a.md", f"Before.\n\n{unchecked}\n\nAfter.\n", {}) == []
    assert prose.sentences(f"Before.\n\n{unchecked}\n\nAfter.\n")[-1][0] == 4 + unchecked.count("\n") + 1


def test_text_after_a_mark_without_an_end_is_read(prose):
    text = "<!-- run by a test -->\n\nThis is none.\n\n<!-- table -->\n\n| is none |\n\n<!-- end -->\n"
    assert prose.problems("a.md", text, {}) == ["a.md:3: do not write 'is none'"]


def test_a_phrase_is_found_across_lines_and_in_headings(prose):
    text = "# The leak, From nothing\n\nWith more rounds it comes\nfurther.\n"
    assert prose.problems("a.md", text, {}) == [
        "a.md:1: do not write 'From nothing'",
        "a.md:3: do not write 'comes further'",
    ]


def test_a_long_sentence_and_a_high_mean_are_found(prose, project, capsys):
    (project / "docs" / "page.md").write_text(f"# Page\n\nShort.\n\n{LONG}")
    assert prose.main([], project) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(": word")[0] for line in printed] == [
        "docs/page.md:5: 41 words, at most 32",
        "docs/page.md:1: sentences have 21 words on average, at most 16",
    ]


def test_an_allowance_is_needed_exactly_and_shrinks(prose, project, capsys):
    page, file = project / "docs" / "page.md", project / "tools" / "prose.json"
    page.write_text(LONG)
    file.write_text(json.dumps({"docs/page.md": {"mean": 41, "longest": 41}}))
    assert prose.main([], project) == 0
    page.write_text(LONG.removeprefix("word "))
    assert prose.main([], project) == 1
    assert "docs/page.md:1: needs less than tools/prose.json allows" in capsys.readouterr().out
    assert prose.main(["--shrink"], project) == 0
    assert json.loads(file.read_text()) == {"docs/page.md": {"mean": 40, "longest": 40}}
    assert prose.main([], project) == 0


def test_shrinking_never_raises_and_drops_what_is_not_needed(prose, project):
    file = project / "tools" / "prose.json"
    (project / "docs" / "page.md").write_text(LONG)
    allowed = {
        "docs/page.md": {"mean": 41, "longest": 35},
        "README.md": {"mean": 20},
        "docs/gone.md": {"mean": 20},
    }
    file.write_text(json.dumps(allowed))
    prose.main(["--shrink"], project)
    assert json.loads(file.read_text()) == {"docs/page.md": {"mean": 41, "longest": 35}}
    assert prose.main([], project) == 1


def test_an_allowance_of_no_page_is_reported(prose, project, capsys):
    (project / "tools" / "prose.json").write_text('{"docs/gone.md": {"mean": 20}}')
    assert prose.main([], project) == 1
    assert capsys.readouterr().out == "tools/prose.json:1: there is no docs/gone.md\n"
