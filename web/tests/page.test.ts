/** The page in Chromium, opened from the disk and from a web server. */

import { readFileSync, writeFileSync } from "node:fs";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open, type Opened, serve } from "./browser";
import { CHROMIUM, launch } from "./chromium.mjs";
import { path } from "./example";
import { correctMoonquake, exported, removeColdInk, save } from "./history";
import { NOTHING, readByOther } from "./other_file.mjs";

let browser: Browser;
beforeAll(async () => {
  if (CHROMIUM) browser = await launch();
});
afterAll(async () => {
  await browser?.close();
});

async function choose(page: Page, file: string): Promise<void> {
  await page.setInputFiles("input[type=file]", path(`exports/${file}`));
}

/** A page with the Letterboxd history of the example. */
async function withHistory(options = {}): Promise<Opened> {
  const opened = await open(browser, path("page/index.html"), options);
  await choose(opened.page, "letterboxd.zip");
  await opened.page.getByRole("button", { name: /^Show what/ }).click();
  await opened.page.waitForSelector(".film");
  return opened;
}

const firstTitle = (page: Page) => page.locator(".film h2").first().innerText();
const titles = (page: Page) => page.locator(".film h2").allInnerTexts();

describe.skipIf(!CHROMIUM)("the page", () => {
  test("a Letterboxd zip becomes recommendations with reasons, and nothing is requested", async () => {
    const { page, context, requests, complaints } = await open(browser, path("page/index.html"));
    await choose(page, "letterboxd.zip");
    await page.locator("table").waitFor();
    const rows = await page.locator("table tr").allInnerTexts();
    expect(Object.fromEntries(rows.map((row) => row.split("\t")))).toEqual({
      added: "9",
      "not in the catalogue": "2",
      "bad row": "2",
      "the same film in another file of the export": "10",
    });
    await page.getByLabel("The Robot Gardner (1979)").selectOption("Robot Gardener, The (1979)");
    await page.getByRole("button", { name: "Accept 1 match" }).click();
    await page.getByText("1 entry added.").waitFor();
    await page.getByRole("button", { name: "Show what 10 films recommend" }).click();
    expect(await page.locator(".film").count()).toBe(24);
    expect(await page.locator(".because").first().innerText()).toMatch(/^because of .+ \d{4}/);
    for (const seen of ["Moonquake", "Robot Gardener, The"]) {
      expect((await titles(page)).filter((each) => each.startsWith(seen))).toEqual([]);
    }
    await page.reload();
    await page.waitForSelector(".film"); // the history is still there
    expect(requests.filter((each) => each !== page.url())).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("films are filtered, hidden, seen and compared", async () => {
    const { page, context } = await withHistory();
    await page.getByLabel("Genre").selectOption("Horror");
    await page.getByLabel("From year").fill("1990");
    await page.getByLabel("From year").press("Enter");
    await expect.poll(async () => (await titles(page)).every((each) => Number(each.slice(-4)) >= 1990)).toBe(true);
    expect(await page.locator(".genres").allInnerTexts()).toEqual(Array(5).fill("Horror"));
    const hidden = await firstTitle(page);
    await page.locator(".film").first().getByRole("button", { name: "Hide" }).click();
    await expect.poll(() => titles(page)).not.toContain(hidden);
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => titles(page)).toContain(hidden);
    await page.locator(".film").first().getByRole("button", { name: /^Seen (?!and)/ }).click();
    await expect.poll(() => titles(page)).not.toContain(hidden);
    await page.locator(".film").first().getByRole("button", { name: "Similar" }).click();
    expect(await page.locator(".similar li").count()).toBeGreaterThan(2);
    await page.getByRole("link", { name: "My history" }).click();
    await page.locator(".entries li", { hasText: "seen only" }).first().waitFor();
    await context.close();
  });

  test("entries are searched, corrected, removed, exported, imported again and deleted", async () => {
    const { page, context } = await withHistory({ acceptDownloads: true });
    await page.getByRole("link", { name: "My history" }).click();
    await page.getByRole("heading", { name: "9 entries" }).waitFor();
    await correctMoonquake(page);
    await page.getByLabel("Recommend from it").uncheck();
    await save(page);
    await page.getByText("2023-12-31 · letterboxd · seen only").waitFor();
    await removeColdInk(page, 8);
    const { saved, lines } = await exported(page, "history.csv");
    expect(lines[0]).toBe("item,title,time,source,counts");
    expect(lines[1]).toMatch(/^f\d+,Second Sun \(1990\),2023-12-31,letterboxd,no$/);
    expect(lines.length).toBe(9);
    await page.setInputFiles("input[type=file]", saved);
    await page.getByRole("row", { name: "known already 8" }).waitFor();
    await page.getByRole("button", { name: "Delete everything" }).click();
    await page.getByRole("button", { name: "Yes, delete my history here" }).click();
    await page.getByRole("heading", { name: "0 entries" }).waitFor();
    expect(await page.getByText("What became of every row").count()).toBe(0); // it names films, too
    await page.reload();
    await page.getByRole("heading", { name: "0 entries" }).waitFor();
    await page.setInputFiles("input[type=file]", saved);
    await page.getByRole("row", { name: "added 8" }).waitFor();
    await context.close();
  });

  test("the owner of a page from the disk keeps nothing that another file could read", async () => {
    const { page, context } = await withHistory();
    const read = () => readByOther(context, path("other.html"));
    expect((await read()).found).toContainEqual(expect.objectContaining({ source: "letterboxd" }));
    const second = await context.newPage(); // another tab, which has the history open
    await second.goto(page.url());
    await second.waitForSelector(".film");
    await page.getByRole("link", { name: "My history" }).click();
    await page.getByText("any HTML file that you open from your disk can read what such pages keep").waitFor();
    await page.getByLabel(NOTHING).check();
    await page.getByText("Nothing is kept: your history is forgotten when you close this tab.").waitFor();
    expect(await read()).toEqual({ found: [], databases: 0 });
    await page.getByRole("heading", { name: "9 entries" }).waitFor(); // for this tab
    await removeColdInk(page, 8);
    await second.locator(".film").first().getByRole("button", { name: "Hide" }).click();
    await second.getByText(/is hidden/).waitFor();
    expect(await read()).toEqual({ found: [], databases: 0 });

    await page.reload();
    await page.getByRole("heading", { name: "0 entries" }).waitFor();
    expect(await page.getByLabel(NOTHING).isChecked()).toBe(true); // the choice holds
    await choose(page, "ratings.csv");
    await page.getByRole("heading", { name: /^[1-9]\d* entr/ }).waitFor();
    expect(await read()).toEqual({ found: [], databases: 0 });
    await page.getByLabel("Keep it in this browser").check();
    await expect.poll(async () => (await read()).found.length).toBeGreaterThan(0);
    await page.reload();
    await page.getByRole("heading", { name: /^[1-9]\d* entr/ }).waitFor();
    await context.close();
  });

  test("on a web server the page names who shares the storage", async () => {
    const { server, address } = await serve(path("page"));
    const { page, context } = await open(browser, address);
    await page.getByText(`Other pages of ${new URL(address).host} can read what is kept in this browser.`).waitFor();
    await context.close();
    server.closeAllConnections();
    server.close();
  });

  test("MovieLens ratings of several people, and a file that cannot be read", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    const rows = ["1\tf1\t5\t881250949", "2\tf2\t4\t881250950", "2\tf3\t1\t881250951"].join("\n");
    const headed = `userId\tmovieId\trating\ttimestamp\n${rows}`;
    const file = { name: "u.data", mimeType: "text/plain", buffer: Buffer.from(headed) };
    await page.setInputFiles("input[type=file]", file);
    await page.getByLabel("Your id in the file").fill("2");
    await page.getByRole("button", { name: "Import" }).click();
    await page.getByText("2 films of u.data found in the catalogue, 1 of them rated below 3.5: seen only.").waitFor();
    await page.setInputFiles("input[type=file]", { ...file, buffer: Buffer.from([0xff, 0xfe, 0x00]) });
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").innerText()).toContain("not text in UTF-8");
    await context.close();
  });

  test("a file is dropped on the page", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    const text = readFileSync(path("exports/ratings.csv"), "utf8");
    const transfer = await page.evaluateHandle((content) => {
      const dropped = new DataTransfer();
      dropped.items.add(new File([content], "ratings.csv"));
      return dropped;
    }, text);
    await page.dispatchEvent(".drop", "drop", { dataTransfer: transfer });
    await page.getByText(/films of ratings.csv found in the catalogue, 1 of them rated below 3.5/).waitFor();
    await context.close();
  });

  test("a model that was tampered with is refused", async () => {
    const page = readFileSync(path("page/index.html"), "utf8");
    const begin = page.indexOf('id="bundle">') + 'id="bundle">'.length;
    for (const [share, said] of [
      [0.01, "changed after it was signed"], // the manifest
      [0.9, "shared.safetensors differs"],
    ] as const) {
      const at = begin + 4 * Math.floor((share * (page.indexOf("<", begin) - begin)) / 4);
      const letter = page[at] === "A" ? "B" : "A";
      writeFileSync(path("tampered.html"), page.slice(0, at) + letter + page.slice(at + 1));
      const opened = await open(browser, path("tampered.html"));
      expect(await opened.page.getByRole("alert").innerText()).toContain(said);
      expect(await opened.page.locator("nav").count()).toBe(0);
      await opened.context.close();
    }
  });

  test("the page cannot connect, and a person can see that", async () => {
    const { page, context, requests } = await open(browser, path("page/index.html"));
    await page.getByRole("link", { name: "What left this device" }).click();
    await page.getByRole("button", { name: "Try to connect" }).click();
    await page.getByText("The browser refused the connection, by the rule connect-src 'none'.").waitFor();
    const leaks = await page.evaluate(async () => {
      const image = new Image();
      image.src = "https://solera.invalid/x.png";
      const failed = await new Promise((resolve) => {
        image.onload = () => resolve(false);
        image.onerror = () => resolve(true);
      });
      return [failed, navigator.sendBeacon("https://solera.invalid/", "x")];
    });
    expect(leaks[0]).toBe(true);
    expect(requests.filter((each) => !each.startsWith("file:") && !each.includes("solera.invalid"))).toEqual([]);
    await context.close();
  });

  test("on a web server it is installed, and opens offline", async () => {
    const { server, address } = await serve(path("page"));
    const { page, context, requests, complaints } = await open(browser, address);
    await page.evaluate(() => navigator.serviceWorker.ready);
    await choose(page, "ratings.csv");
    await page.getByRole("button", { name: /^Show what/ }).click();
    const first = await firstTitle(page);
    server.closeAllConnections();
    server.close();
    await context.setOffline(true);
    await page.reload();
    await page.waitForSelector(".film");
    expect(await firstTitle(page)).toBe(first);
    const others = requests.filter((each) => !each.startsWith(address));
    expect(others).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("everything can be reached with the keyboard", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    await page.keyboard.press("Tab");
    expect(await page.locator(":focus").innerText()).toBe("Skip to content");
    for (const name of ["For you", "My history", "What left this device", "Model"]) {
      await page.keyboard.press("Tab");
      expect(await page.locator(":focus").innerText()).toBe(name);
    }
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Model" }).waitFor();
    await context.close();
  });

  describe.each([1280, 390])("at %i pixels", (width) => {
    test.each(["light", "dark"] as const)("%s: no axe violation, nothing wider than the window", async (colorScheme) => {
      const options = { viewport: { width, height: 900 }, colorScheme };
      const { page, context } = await open(browser, path("page/index.html"), options);
      await page.evaluate(axe.source);
      const check = async (screen: string) => {
        const found = await page.evaluate(async () => {
          const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
          return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
        });
        expect(found, screen).toEqual([]);
        expect(await page.evaluate(() => document.documentElement.scrollWidth), screen).toBeLessThanOrEqual(width);
      };
      await check("welcome");
      await choose(page, "letterboxd.zip");
      await page.getByRole("button", { name: "Go on without them" }).waitFor();
      await check("import");
      await page.getByRole("button", { name: /^Show what/ }).click();
      await page.locator(".film").first().getByRole("button", { name: "Similar" }).click();
      await page.locator(".film summary").first().click();
      await check("for you");
      await page.getByRole("link", { name: "My history" }).click();
      await page.getByRole("button", { name: /^Correct/ }).first().click();
      await check("history");
      await page.getByRole("link", { name: "What left this device" }).click();
      await check("left");
      await page.getByRole("link", { name: "Model" }).click();
      await check("model");
      await context.close();
    });
  });
});
