"use strict";
// The theme: as the system has it, until somebody presses the button.
const root = document.documentElement;
const kept = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
  set: value => { try { localStorage.setItem("theme", value); } catch { /* a page from a file may keep nothing */ } } };
if (kept.get()) root.dataset.theme = kept.get();
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  kept.set(root.dataset.theme);
});
// Paper is light.
addEventListener("beforeprint", () => { root.dataset.theme = "light"; });
addEventListener("afterprint", () => { if (kept.get()) root.dataset.theme = kept.get(); else delete root.dataset.theme; });

// Legends: a run is switched in all figures at once.
function toggle(key) {
  const on = key.getAttribute("aria-pressed") !== "true";
  for (const each of document.querySelectorAll(`[data-for="${key.dataset.for}"]`)) each.setAttribute("aria-pressed", on);
  for (const each of document.querySelectorAll(`[data-key="${key.dataset.for}"]`)) each.classList.toggle("off", !on);
}
for (const key of document.querySelectorAll(".key")) {
  key.addEventListener("click", () => toggle(key));
  key.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(key); }
  });
}

// Hints: what stands nearest to the pointer, in the units of the chart.
const hint = document.getElementById("hint");
function pointsOf(series) {
  return [...series.querySelectorAll("[data-y]")].flatMap(mark => {
    const { x, y } = mark.dataset, at = name => Number(mark.getAttribute(name));
    if (mark.tagName === "rect") {
      const half = at("width") / 2;
      return [{ series, left: at("x") + half, half, top: at("y"), bottom: at("y") + at("height"), x, y }];
    }
    const places = [...mark.getAttribute("d").matchAll(/([\d.-]+),([\d.-]+)/g)];
    const [xs, ys] = [x.split(" "), y.split(" ")];
    return places.map((place, i) => ({ series, left: +place[1], top: +place[2], x: xs[i], y: ys[i] }));
  });
}
for (const chart of document.querySelectorAll(".chart")) {
  let points;
  chart.addEventListener("pointermove", event => {
    points ??= [...chart.querySelectorAll("[data-key]")].flatMap(pointsOf);
    const box = chart.getBoundingClientRect(), scale = box.width / chart.viewBox.baseVal.width;
    const left = (event.clientX - box.left) / scale, top = (event.clientY - box.top) / scale;
    let best, nearest = 30;
    for (const point of points) {
      const across = Math.max(0, Math.abs(point.left - left) - (point.half ?? 0));
      const apart = Math.hypot(across, Math.max(0, point.top - top, top - (point.bottom ?? point.top)));
      if (apart < nearest && !point.series.classList.contains("off")) [best, nearest] = [point, apart];
    }
    hint.hidden = !best;
    if (!best) return;
    const { xl, yl } = chart.dataset;
    hint.textContent = [best.series.dataset.label, `${xl} ${best.x}`.trim(), `${yl} ${best.y}`].filter(Boolean).join("\n");
    hint.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 4))}px`;
    hint.style.top = `${Math.max(4, event.clientY - hint.offsetHeight - 12)}px`;
  });
  chart.addEventListener("pointerleave", () => { hint.hidden = true; });
}
