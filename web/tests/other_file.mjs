/**
 * Another HTML file of the same disk, which reads whatever the browser lets it read.
 *
 * node tests/other_file.mjs PAGE/index.html FILM OTHER.html
 *
 * prints as JSON what OTHER.html reads while the page keeps a history with FILM, and after its owner keeps nothing.
 */

import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { launch } from "./chromium.mjs";

const SCRIPT = `(async () => {
  const wait = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const found = [];
  for (const { name } of await indexedDB.databases()) {
    const database = await wait(indexedDB.open(name));
    const stores = [...database.objectStoreNames];
    for (const store of stores) found.push(...(await wait(database.transaction(store).objectStore(store).getAll())));
    database.close();
  }
  document.body.dataset.found = JSON.stringify({ found, databases: (await indexedDB.databases()).length });
})();`;

export const NOTHING = "Keep nothing: forget when this tab is closed";

/** What the other file reads, which is written to a path first. */
export async function readByOther(context, path) {
  writeFileSync(path, `<!doctype html><body><script>${SCRIPT}</script>`);
  const page = await context.newPage();
  await page.goto(pathToFileURL(path).href);
  await page.waitForSelector("body[data-found]", { state: "attached" });
  const read = JSON.parse(await page.evaluate(() => document.body.dataset.found));
  await page.close();
  return read;
}

if (process.argv[1]?.endsWith("other_file.mjs")) {
  const [file, film, other] = process.argv.slice(2);
  const browser = await launch();
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  await page.getByLabel("A title that you like").fill(film);
  await page.getByRole("button", { name: /^Add/ }).first().click();
  await page.getByRole("button", { name: "Show what is for me" }).waitFor();
  const kept = await readByOther(context, other);
  const said = await page.locator("main").innerText();
  await page.getByLabel(NOTHING).check();
  await page.locator(".note").waitFor();
  const nothing = await readByOther(context, other);
  console.log(JSON.stringify({ kept, said, nothing }));
  await browser.close();
}
