/**
 * A person turns threshold reports on in Chromium, sends, and deletes an item.
 *
 * node tests/contribute.mjs ADDRESS ITEMS     one line of JSON after every step; the next begins when a line comes in
 *
 * ADDRESS is of the folder with both pages; ITEMS are ids of the history, in JSON, oldest first.
 */

import { createInterface } from "node:readline";
import axe from "axe-core";
import { launch } from "./chromium.mjs";

const [address, items] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await launch();
const page = await (await browser.newContext({ bypassCSP: true })).newPage(); // for axe alone
const asked = [];
page.on("request", (request) => request.url().startsWith(address) || asked.push(new URL(request.url()).pathname));
const went = () => page.locator(".went li").allInnerTexts();

/** What axe finds, in every language, and English where another one is spoken. */
async function looked() {
  const found = [];
  for (const language of ["en", "de", "fr", "es"]) {
    await page.evaluate((chosen) => localStorage.setItem("solera language", chosen), language);
    await page.reload();
    await page.locator(`html[lang=${language}] h1`).waitFor();
    await page.evaluate(axe.source);
    found.push(...(await page.evaluate(async () => (await axe.run()).violations.map(({ id }) => id))));
    if (language !== "en" && /\b(the|your|and)\b/i.test(await page.locator("main").innerText())) found.push(`English in ${language}`);
  }
  await page.evaluate(() => localStorage.removeItem("solera language"));
  await page.reload();
  await page.locator("html[lang=en] h1").waitFor();
  return found;
}

async function done(step, more = {}) {
  console.log(JSON.stringify({ step, asked, went: await went(), ...more }));
  await lines.next();
}

/** Change the history as the other page does. */
const change = (put, remove) =>
  page.evaluate(
    async ({ put, remove }) => {
      const { store } = JSON.parse(document.getElementById("settings").textContent);
      const database = await new Promise((resolve) => {
        const request = indexedDB.open(store);
        request.onsuccess = () => resolve(request.result);
      });
      const writing = database.transaction("entries", "readwrite");
      for (const [place, item] of put.entries())
        writing.objectStore("entries").put({ number: place + 1, item, time: place, source: "test" }, place + 1);
      for (const number of remove) writing.objectStore("entries").delete(number);
      await new Promise((resolve) => (writing.oncomplete = resolve));
      database.close();
    },
    { put, remove },
  );

await page.goto(`${address}index.html`);
await page.locator("nav").waitFor(); // the history's database is there
await page.goto(`${address}contribute.html`);
await page.getByRole("button", { name: "Turn on" }).waitFor();
await change(JSON.parse(items), []);
await done("off");
await page.getByRole("button", { name: "Turn on" }).click();
const key = page.getByLabel("Key");
await key.filter({ hasText: "ecdsa" }).waitFor();
await done("on", { key: await key.innerText() });
await page.getByRole("button", { name: "Send what is new" }).click();
await page.getByRole("status").filter({ hasText: /^(Sent|Not)/ }).waitFor();
await done("sent", { said: await page.getByRole("status").innerText() });
await change([], [1]);
await page.reload();
await page.getByText("Of an item that you have deleted").first().waitFor();
await done("deleted", { found: await looked() });
await page.getByRole("button", { name: "Turn off" }).click();
await page.getByRole("button", { name: "Turn on" }).waitFor();
await done("off again");
await browser.close();
