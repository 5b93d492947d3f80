/** What a person does on the screens, in the page and in the service. */

import { readFileSync } from "node:fs";
import axe from "axe-core";
import { expect } from "vitest";
import type { Page } from "playwright-core";
import { path } from "./example";

type Place = "for-you" | "history" | "left" | "model";

export async function go(page: Page, place: Place): Promise<void> {
  await page.locator(`nav a[href="#${place}"]`).click();
  await page.locator(`nav a[href="#${place}"][aria-current]`).waitFor();
}

/** The titles of the cards. */
export const titles = (page: Page) => page.locator(".film h2").allInnerTexts();
export const card = (page: Page, place = 0) => page.locator(".film").nth(place);

/** Choose a file, for the history or (1) for the library. */
export const choose = (page: Page, file: string | { name: string; text: string | Buffer }, place = 0) =>
  page
    .locator("input[type=file]")
    .nth(place)
    .setInputFiles(
      typeof file === "string" ? path(`exports/${file}`) : { name: file.name, mimeType: "text/plain", buffer: Buffer.from(file.text) },
    );

/** What became of every row, as the page says it. */
export async function outcome(page: Page): Promise<Record<string, string>> {
  await page.getByText("What became of every row").first().click();
  const rows = await page.locator(".outcome tr").allInnerTexts();
  return Object.fromEntries(rows.map((row) => row.split("\t")));
}

/** An action of the folded ones of a card. */
export async function more(page: Page, action: string, place = 0): Promise<void> {
  await card(page, place).locator(".more summary").click();
  await card(page, place).getByRole("button", { name: action }).click();
}

export const search = (page: Page, text: string) => page.getByLabel("Search my history").fill(text);

/** Open Moonquake, say that it was Second Sun on the last day of 2023, and leave it open. */
export async function correctMoonquake(page: Page): Promise<void> {
  await search(page, "moonq");
  await page.getByRole("heading", { name: "1 entry" }).waitFor();
  await page.getByRole("button", { name: "Correct" }).click();
  await page.getByLabel("It was another title").fill("second");
  await page.getByRole("button", { name: "Take Second Sun" }).click();
  await page.getByLabel("Date", { exact: true }).fill("2023-12-31");
}

export async function save(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Save" }).click();
  await search(page, "second sun");
}

/** Remove Cold Ink from the whole history, which has so many entries afterwards. */
export async function removeColdInk(page: Page, left: number): Promise<void> {
  await search(page, "");
  await page.getByRole("button", { name: "Remove Cold Ink (1995)" }).click();
  await page.getByRole("heading", { name: `${left} entries` }).waitFor();
}

/** The exported history: its file, and its lines. */
export async function exported(page: Page, name: string): Promise<{ saved: string; lines: string[] }> {
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export history.csv" }).click();
  const saved = path(name);
  await (await download).saveAs(saved);
  return { saved, lines: readFileSync(saved, "utf8").trim().split("\n") };
}

/** No finding of axe, and nothing wider than the window. */
export async function clean(page: Page, screen: string): Promise<void> {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => {
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
  });
  expect(found, screen).toEqual([]);
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  expect(wide, screen).toBeLessThanOrEqual(window!);
}

/** Every view, from the first visit on; `see` is told its name. */
export async function everyView(page: Page, see: (view: string) => Promise<void>): Promise<void> {
  await page.locator(".welcome").waitFor();
  await see("welcome");
  await choose(page, { name: "films.zip", text: "PK\x03\x04" });
  await page.getByRole("alert").waitFor();
  await see("damaged zip");
  await choose(page, { name: "unclear.csv", text: "a,b\n1,2\n" });
  await page.locator("form.panel").waitFor();
  await see("columns");
  await choose(page, "letterboxd.zip");
  await card(page).waitFor();
  for (const summary of await page.locator(".outcome summary").all()) await summary.click();
  await see("import");
  await go(page, "history");
  await choose(page, { name: "list.csv", text: "title,year\nNight Desk,1966\nTidal Engine,2009\n" }, 1);
  await page.locator("[aria-labelledby=list-title] .outcome").waitFor();
  await page.locator(".rows button").first().click();
  await page.locator(".rows form").waitFor();
  await see("history");
  await go(page, "for-you");
  await card(page).waitFor();
  await card(page).locator(".because summary").click();
  await card(page, 1).locator(".more summary").click();
  await see("reasons");
  await page.keyboard.press("Escape");
  await card(page, 2).locator(".main").click();
  await see("question");
  await page.locator(".tools .chip").last().click();
  await see("adjust");
  await page.locator("input[type=number]").first().fill("2100");
  await page.locator("input[type=number]").first().press("Enter");
  await page.locator(".empty").waitFor();
  await see("nothing");
  await page.locator(".empty button").click();
  await card(page).waitFor();
  await card(page).locator(".more summary").click();
  await card(page).locator(".menu button").first().click();
  await page.locator(".thumbs button").nth(2).waitFor();
  await see("similar");
  await page.keyboard.press("Escape");
  await page.locator(".tools .chip").first().click();
  await page.locator(".panel input").first().fill("Ana");
  await choose(page, { name: "ana.csv", text: "title\nThe Postmistress\nKite Weather\n" });
  await page.locator(".film .who").first().waitFor();
  await see("together");
  await card(page).locator(".more summary").click();
  await card(page).locator(".menu button").nth(1).click();
  await page.locator(".said p").waitFor();
  await see("disliked");
  for (const place of ["left", "model"] as const) {
    await page.locator(`nav a[href="#${place}"]`).click();
    await page.locator(place === "left" ? ".nothing" : ".about").first().waitFor();
    for (const summary of await page.locator("main summary").all()) await summary.click();
    await see(place);
  }
}

/** Press Tab until the focus is on a control of that name, or of that selector. */
export async function tabTo(page: Page, wanted: string | RegExp): Promise<void> {
  for (let presses = 0; presses < 150; presses++) {
    await page.keyboard.press("Tab");
    const { name, is } = await page.evaluate((selector) => {
      const on = document.activeElement as HTMLInputElement;
      const text = on.getAttribute("aria-label") ?? on.labels?.[0]?.innerText ?? on.innerText;
      return { name: text.trim(), is: selector !== "" && on.matches(selector) };
    }, typeof wanted === "string" ? wanted : "");
    if (is || (wanted instanceof RegExp && wanted.test(name))) return;
  }
  throw new Error(`the keyboard does not reach ${wanted}`);
}

/** The whole way of a person with nothing but a keyboard: import, results, reason, hide, together, what left. */
export async function walkByKeyboard(page: Page): Promise<void> {
  const press = (...keys: string[]) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const hers = { name: "ana.csv", mimeType: "text/csv", buffer: Buffer.from("title\nThe Postmistress\nKite Weather\n") };
  const files = [path("exports/letterboxd.zip"), hers];
  page.on("filechooser", (dialog) => void dialog.setFiles(files.shift()!)); // from now on: it takes a moment to hold
  await tabTo(page, /^Skip to content$/);
  await press("Enter");
  await tabTo(page, "input[type=file]");
  await press("Enter"); // opens the dialog of the system, which a test answers
  await card(page).waitFor();
  const first = (await titles(page))[0]!;

  await tabTo(page, ".film .because summary");
  await press("Enter");
  await page.locator(".film .shares .percent").first().waitFor();
  await tabTo(page, ".film .more summary");
  await press("Enter");
  await tabTo(page, /^Hide only this one/);
  await press("Enter");
  await expect.poll(() => titles(page)).not.toContain(first);
  const focused = () => page.evaluate(() => document.activeElement?.closest(".film")?.querySelector("h2")?.textContent);
  await expect.poll(focused).toBe((await titles(page))[0]); // on the card that took its place

  await page.keyboard.press("Shift+Tab"); // back up, to the tools above the list
  for (let presses = 0; presses < 20 && !/^Together/.test(await page.evaluate(() => (document.activeElement as HTMLElement).innerText)); presses++) {
    await page.keyboard.press("Shift+Tab");
  }
  await press("Enter");
  await page.getByLabel("Name of the other person").waitFor();
  await tabTo(page, /^Name of the other person$/);
  await page.keyboard.type("Ana");
  await page.locator(".panel input[type=file]").waitFor({ state: "attached" });
  await tabTo(page, "input[type=file]");
  await press("Enter");
  await page.locator(".film .who").first().waitFor();
  expect(await card(page).innerText()).toContain("Ana:");

  await tabTo(page, 'nav a[href="#left"]');
  await press("Enter");
  await page.getByRole("heading", { name: "What left this device", level: 1 }).waitFor();
}
