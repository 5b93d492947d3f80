"""The page in a browser, headless Chromium, at the width of a desktop and of a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made import write_run

from solera.report import make_page, read_runs
from solera.report.figures import make_figures

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium to look at the page with")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# The page stands in a frame: a window cannot be as narrow as a phone. What it does is asked once it is there.
FRAME = """<!doctype html><meta charset="utf-8"><body data-errors="[]" style="margin:0">
<iframe style="border:0;width:{width}px;height:800px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const frame = document.querySelector("iframe").contentWindow, inside = frame.document;
  const all = pattern => [...inside.querySelectorAll(pattern)];
  const found = {{
    milliseconds: frame.performance.timing.loadEventStart - frame.performance.timing.navigationStart,
    requests: frame.performance.getEntriesByType("resource").map(entry => entry.name),
    width: frame.innerWidth,
    needed: inside.documentElement.scrollWidth,
    figures: all("figure").length,
  }};
  const chart = inside.querySelector("#convergence-loss .chart"), line = chart.querySelector(".line");
  const [, x, y] = line.getAttribute("d").match(/M([\\d.]+),([\\d.]+)/), box = chart.getBoundingClientRect();
  const scale = box.width / chart.viewBox.baseVal.width;
  const at = {{ clientX: box.left + x * scale, clientY: box.top + y * scale, bubbles: true }};
  chart.dispatchEvent(new frame.PointerEvent("pointermove", at));
  found.hint = inside.getElementById("hint").textContent;
  found.hidden = inside.getElementById("hint").hidden;
  const bars = inside.querySelector("#headline-full .chart"), bar = bars.querySelectorAll("rect[data-y]")[2];
  const middle = bar.getBoundingClientRect();
  const inBar = {{ clientX: middle.left + middle.width / 2, clientY: middle.bottom - 1, bubbles: true }};
  bars.dispatchEvent(new frame.PointerEvent("pointermove", inBar));
  found.bar = inside.getElementById("hint").textContent;
  const visible = each => frame.getComputedStyle(each).display !== "none";
  const shown = () => all('[data-key="run0"]').filter(visible).length;
  found.before = shown();
  const key = chart.querySelector('.key[data-for="run0"]');
  key.dispatchEvent(new frame.MouseEvent("click", {{ bubbles: true }}));
  found.after = shown();
  const paper = () => frame.getComputedStyle(inside.body).backgroundColor;
  found.light = paper();
  inside.getElementById("theme").click();
  found.dark = paper();
  document.body.dataset.found = JSON.stringify(found);
}});
</script></body>"""


def look(page: str, width: int, folder: Path) -> tuple[dict, list[str]]:
    """What the frame found, and what the console says."""
    path = folder / "frame.html"
    path.write_text(FRAME.format(width=width, page=html.escape(page)), encoding="utf-8")
    assert CHROMIUM
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *FLAGS, profile, f"--window-size={max(width, 500)},800", "--enable-logging=stderr"]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stdout[-500:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """Ten runs of a hundred rounds."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(10):
        write_run(folder / f"run{seed}", seed=seed, rounds=100)
    runs = read_runs(sorted(folder.iterdir()))
    return make_page(runs, make_figures(runs))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(page, width, tmp_path):
    found, console = look(page, width, tmp_path)
    assert console == []
    assert found["requests"] == []
    assert found["width"] == width
    assert found["needed"] <= width  # nothing but tables scrolls sideways
    assert found["figures"] == page.count("<figure ")
    assert found["hidden"] is False
    assert found["hint"].splitlines()[:2] == ["fedmf · s0", "round 1"]
    assert found["bar"].splitlines()[:2] == ["fedmf · s1", "HR@10"]
    assert found["before"] > 0 and found["after"] == 0
    assert found["light"] == "rgb(255, 255, 255)" and found["dark"] != found["light"]


def test_a_page_that_asks_and_complains_is_seen(page, tmp_path):
    """The same eyes see a request and an error where there are some."""
    policy = page.index('<meta http-equiv="Content-Security-Policy"')
    open_page = page[:policy] + page[page.index(">", policy) + 1 :]
    bad = open_page.replace(
        "<main>", '<main><img src="http://127.0.0.1:9/x.png"><script>nothing.there()</script>'
    )
    found, console = look(bad, 1280, tmp_path)
    assert found["requests"] == ["http://127.0.0.1:9/x.png"]
    assert any("nothing is not defined" in line for line in console)
    _, refused = look(page.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">'), 1280, tmp_path)
    assert any("Content Security Policy" in line for line in refused)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_there_within_a_second(page, width, tmp_path):
    """The best of some: a busy machine is no finding."""
    taken = [look(page, width, tmp_path)[0]["milliseconds"] for _ in range(5)]
    print(f"{width} px: {taken} ms, {len(page.encode()):,} bytes")
    assert min(taken) < 1000
