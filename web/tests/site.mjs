/**
 * Look at pages of the built documentation, and search it.
 *
 *     node tests/site.mjs ADDRESS WORDS PAGE…
 *
 * Prints one JSON document: of each page what axe calls serious or critical, other hosts that were asked, errors
 * of its scripts, and its height in screens of 900 pixels; and the first result of a search for WORDS.
 */

import axe from "axe-core";
import { launch } from "./chromium.mjs";

const [address = "", words = "", ...pages] = process.argv.slice(2);
const browser = await launch();
const found = [];
let result = "";
for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme });
  /** @type {string[]} */
  const troubles = [];
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && /^https?:/.test(request.url())) troubles.push(request.url());
  });
  for (const name of pages) {
    await page.goto(address + name, { waitUntil: "load" });
    await page.locator("h1").first().waitFor();
    await page.evaluate(axe.source);
    const violations = await page.evaluate(async () => {
      const { violations } = await /** @type {any} */ (globalThis).axe.run();
      return violations
        .filter((/** @type {any} */ each) => ["serious", "critical"].includes(each.impact))
        .map((/** @type {any} */ each) => `${each.id}: ${each.nodes[0].html} (${each.nodes.length})`);
    });
    const screens = await page.evaluate(() => document.documentElement.scrollHeight / 900);
    found.push({ page: name, colorScheme, violations, screens, troubles: troubles.splice(0) });
  }
  if (colorScheme === "light") {
    await page.goto(`${address}index.html`, { waitUntil: "load" });
    await page.locator("input.md-search__input").click();
    await page.locator("input.md-search__input").pressSequentially(words, { delay: 30 });
    const first = page.locator(".md-search-result__item a").first();
    await first.waitFor({ timeout: 60_000 });
    await first.click();
    await page.locator("h1").first().waitFor();
    result = page.url().slice(address.length).replace(/[?#].*/, "");
  }
  await page.close();
}
await browser.close();
console.log(JSON.stringify({ found, result }));
