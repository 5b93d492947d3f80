/** What a person does on the screen My history. */

import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { path } from "./example";

export const search = (page: Page, text: string) => page.getByLabel("Search my history").fill(text);

/** Open Moonquake, say that it was Second Sun on the last day of 2023, and leave it open. */
export async function correctMoonquake(page: Page): Promise<void> {
  await search(page, "moonq");
  await page.getByRole("heading", { name: "1 entry" }).waitFor();
  await page.getByRole("button", { name: "Correct" }).click();
  await page.getByLabel("It was another film").fill("second");
  await page.getByRole("button", { name: "Take Second Sun (1990)" }).click();
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
