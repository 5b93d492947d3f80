/**
 * Measure a page in Chromium: how soon it is ready, and how soon recommendations of 500 films are there.
 *
 * node tests/measure.mjs PAGE/index.html
 */

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { launch } from "./chromium.mjs";

const TIMES = 5;
const FILMS = 500;

const [file] = process.argv.slice(2);
const browser = await launch();
const [ready, shown] = [[], []];
for (let time = 0; time < TIMES; time++) {
  const page = await (await browser.newContext()).newPage();
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("html[data-ready]");
  ready.push(await page.evaluate(() => Number(document.documentElement.dataset.ready)));
  const items = JSON.parse(await page.evaluate(catalogueIds)).slice(0, FILMS);
  const text = `item,time\n${items.map((item, place) => `${item},${1_700_000_000 + place}`).join("\n")}\n`;
  const waited = page.evaluate(untilShown);
  await page.setInputFiles("input[type=file]", { name: "films.csv", mimeType: "text/csv", buffer: Buffer.from(text) });
  shown.push(await waited);
  await page.context().close();
}
await browser.close();

/** The ids of the catalogue, from the bundle in the page. */
function catalogueIds() {
  const bytes = atob(document.getElementById("bundle").textContent.trim());
  const begin = bytes.indexOf("[[", bytes.indexOf("catalogue.json"));
  const rows = bytes.slice(begin, bytes.indexOf("]]", begin)).split(/\], ?\[/);
  return JSON.stringify(rows.map((row) => /"([^"]*)"/.exec(row)[1]));
}

/** Milliseconds from the choice of the file to the films on the screen. */
async function untilShown() {
  const begin = await new Promise((resolve) => addEventListener("change", () => resolve(performance.now()), true));
  while (!document.querySelector(".film h2")) await new Promise((resolve) => requestAnimationFrame(resolve));
  return performance.now() - begin;
}

const page = readFileSync(file, "utf8");
const script = page.slice(page.lastIndexOf("<script>") + 8, page.lastIndexOf("</script>"));
const milliseconds = (times) => `${Math.round(Math.min(...times))} ms (${times.map(Math.round).join(", ")})`;
console.log(`page                  ${(page.length / 1e6).toFixed(2)} MB`);
console.log(`script, compressed    ${(gzipSync(script).length / 1e3).toFixed(1)} kB`);
console.log(`ready, best of ${TIMES}      ${milliseconds(ready)}`);
console.log(`${FILMS} films, best of ${TIMES}  ${milliseconds(shown)}`);
