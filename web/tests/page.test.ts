/** The page in Chromium, opened from the disk and from a web server. */

import { readFileSync, writeFileSync } from "node:fs";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { STRINGS } from "../src/strings";
import { open, type Opened, serve } from "./browser";
import { CHROMIUM, launch } from "./chromium.mjs";
import { path } from "./example";
import { card, choose, clean, correctMoonquake, everyView, exported, go, more, outcome, removeColdInk, save, titles, walkByKeyboard } from "./history";
import { NOTHING, readByOther } from "./other_file.mjs";

let browser: Browser;
beforeAll(async () => {
  if (CHROMIUM) browser = await launch();
});
afterAll(async () => {
  await browser?.close();
});

/** A page with the Letterboxd history of the example. */
async function withHistory(options = {}): Promise<Opened> {
  const opened = await open(browser, path("page/index.html"), options);
  await choose(opened.page, "letterboxd.zip");
  await card(opened.page).waitFor();
  return opened;
}

describe.skipIf(!CHROMIUM)("the page", () => {
  test("a Letterboxd zip becomes recommendations at once, with reasons, and nothing is requested", async () => {
    const { page, context, requests, complaints } = await withHistory();
    expect(await page.locator(".film").count()).toBe(24);
    expect(await outcome(page)).toEqual({
      added: "9",
      "not in the catalogue": "2",
      "bad row": "2",
      "the same film in another file of the export": "10",
    });
    await page.getByText("1 title has a similar one in the catalogue").click();
    await page.getByRole("button", { name: "The Robot Gardener 1979" }).click();
    await page.getByText("From 10 titles of your history.").waitFor();
    for (const seen of ["Moonquake", "The Robot Gardener"]) {
      expect((await titles(page)).filter((each) => each.startsWith(seen))).toEqual([]);
    }
    await page.reload();
    await card(page).waitFor(); // the history is still there
    expect(requests.filter((each) => each !== page.url())).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("reasons have their true share, which is of all that raised the score", async () => {
    const { page, context } = await withHistory();
    for (const place of [0, 5, 12]) {
      const because = card(page, place).locator(".because");
      await because.locator("summary").click();
      const shares = (await because.locator(".percent").allInnerTexts()).map(Number.parseFloat);
      expect(shares.reduce((a, b) => a + b, 0)).toBeGreaterThanOrEqual(98); // each is rounded
      expect(shares.reduce((a, b) => a + b, 0)).toBeLessThanOrEqual(102);
      const [first = ""] = await because.locator("li > span:first-child").allInnerTexts();
      const said = await because.locator("summary").innerText();
      expect(said).toContain(first);
      expect(said.startsWith("Mostly")).toBe(shares[0]! >= 50);
    }
    await context.close();
  });

  test("titles are filtered, hidden, disliked, known and compared, and the list changes", async () => {
    const { page, context } = await withHistory();
    const before = await titles(page);
    await more(page, "Not for me: less like this");
    await page.getByText(`is gone, and what is like it has moved down`).waitFor();
    const after = await titles(page);
    expect(after).not.toContain(before[0]);
    expect(after.filter((each) => before.includes(each))).not.toEqual(before.filter((each) => after.includes(each)));
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => titles(page)).toEqual(before);
    await more(page, "Hide only this one");
    await expect.poll(() => titles(page)).toEqual(expect.not.arrayContaining([before[0]]));
    expect((await titles(page)).slice(0, 23)).toEqual(before.slice(1)); // nothing else has changed
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => titles(page)).toEqual(before);

    await card(page).getByRole("button", { name: "I know it" }).click();
    await card(page).getByRole("button", { name: "No", exact: false }).last().click();
    await expect.poll(() => titles(page)).not.toContain(before[0]);
    await page.getByRole("button", { name: "Adjust" }).click();
    await page.getByLabel("Genre").selectOption("Horror");
    await page.getByLabel("From year").fill("1990");
    await page.getByLabel("From year").press("Enter");
    await expect.poll(async () => (await titles(page)).every((each) => Number(each.slice(-4)) >= 1990)).toBe(true);
    expect(await page.locator(".film .genres").allInnerTexts()).toEqual(Array(5).fill("Horror"));
    await page.getByLabel("To year").fill("1989");
    await page.getByLabel("To year").press("Enter");
    await page.getByRole("button", { name: "Show everything" }).click();
    await expect.poll(async () => (await titles(page)).length).toBe(24);

    await more(page, "Similar titles");
    const heading = page.locator("dialog h2");
    const one = await heading.innerText();
    await page.locator(".thumbs button").first().click(); // what is similar leads on
    await expect.poll(() => heading.innerText()).not.toBe(one);
    await page.getByRole("button", { name: "Close" }).click();
    await go(page, "history");
    await page.locator(".rows li", { hasText: "seen only" }).first().waitFor();
    await context.close();
  });

  test("the list is from the library, from outside of it, more varied, or for two people", async () => {
    const { page, context } = await withHistory();
    const all = await titles(page);
    expect(await page.getByRole("group", { name: "My library" }).count()).toBe(0);
    await go(page, "history");
    await choose(page, { name: "list.csv", text: "title,year\nNight Desk,1966\nTidal Engine,2009\nMoonquake,1958\n" }, 1);
    await page.getByText("3 titles that you own or want to see").waitFor();
    await go(page, "for-you");
    await page.getByRole("button", { name: "Mine only" }).click();
    await expect.poll(async () => (await titles(page)).sort()).toEqual(["Night Desk 1966", "Tidal Engine 2009"]);
    expect(await page.locator(".mine").allInnerTexts()).toEqual(Array(2).fill("In your library"));
    await page.getByRole("button", { name: "Not mine" }).click();
    await expect.poll(async () => (await titles(page)).length).toBe(24);
    expect(await titles(page)).toEqual(expect.not.arrayContaining(["Night Desk 1966"]));
    await page.getByRole("button", { name: "All", exact: true }).click();
    await expect.poll(() => titles(page)).toEqual(all);

    const kinds = async () => new Set((await page.locator(".film .genres").allInnerTexts()).slice(0, 8)).size;
    const before = await kinds();
    await page.getByRole("button", { name: "Adjust" }).click();
    await page.getByLabel("Variety").fill("0.8");
    await expect.poll(kinds).toBeGreaterThan(before);
    await page.getByLabel("Variety").fill("0");
    await expect.poll(() => titles(page)).toEqual(all);

    await page.getByRole("button", { name: "Together" }).click();
    await page.getByLabel("Name of the other person").fill("Ana");
    await choose(page, { name: "ana.csv", text: `title\n${all[0]!.slice(0, -5)}\nThe Postmistress\nKite Weather\n` });
    await page.locator(".film .who").first().waitFor();
    const together = await titles(page);
    expect(together).toEqual(expect.not.arrayContaining([all[0], "Kite Weather 1994"])); // she knows them
    expect(together).not.toEqual(all);
    expect(await card(page).locator(".because").allInnerTexts()).toEqual([expect.stringMatching(/^You:/), expect.stringMatching(/^Ana:/)]);
    await page.reload();
    await page.getByRole("button", { name: "Together" }).click();
    await page.getByRole("button", { name: "Forget Ana" }).click();
    await page.getByLabel("Name of the other person").waitFor();
    await context.close();
  });

  test("entries are searched, corrected, removed, exported, imported again and deleted", async () => {
    const { page, context } = await withHistory({ acceptDownloads: true });
    await go(page, "history");
    await page.getByRole("heading", { name: "9 entries" }).waitFor();
    await correctMoonquake(page);
    await page.getByLabel("Recommend from it").uncheck();
    await save(page);
    await page.getByText("Dec 31, 2023 · letterboxd · seen only").waitFor();
    await removeColdInk(page, 8);
    const { saved, lines } = await exported(page, "history.csv");
    expect(lines[0]).toBe("item,title,time,source,counts");
    expect(lines[1]).toMatch(/^f\d+,Second Sun \(1990\),2023-12-31,letterboxd,no$/);
    expect(lines.length).toBe(9);
    await choose(page, { name: "history.csv", text: readFileSync(saved) });
    expect(await outcome(page)).toMatchObject({ "known already": "8" });
    await page.getByRole("button", { name: "Delete everything" }).click();
    await page.getByRole("button", { name: "Yes, delete my history here" }).click();
    await page.getByRole("heading", { name: "0 entries" }).waitFor();
    expect(await page.getByText("What became of every row").count()).toBe(0); // it names titles, too
    await page.reload();
    await page.getByText("Nothing here yet.").waitFor();
    await choose(page, { name: "history.csv", text: readFileSync(saved) });
    expect(await outcome(page)).toMatchObject({ added: "8" });
    await context.close();
  });

  test("without a history, and with one of which nothing counts, there is a way to begin", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    await go(page, "history");
    await page.getByText("Nothing here yet. Import a file or name a title below.").waitFor();
    await go(page, "for-you");
    await choose(page, { name: "own.csv", text: "title,year,rating\nNight Desk,1966,1\n" });
    await page.getByText("Your history has 1 title, but you did not like it.").waitFor();
    await page.getByLabel("A title that you like").fill("tidal");
    await page.getByRole("button", { name: "Add Tidal Engine" }).click();
    await page.getByRole("button", { name: "Show what is for me" }).click();
    await page.getByText("From 1 title of your history.").waitFor();
    expect(await titles(page)).toEqual(expect.not.arrayContaining(["Night Desk 1966", "Tidal Engine 2009"]));
    await context.close();
  });

  test("the owner of a page from the disk keeps nothing that another file could read", async () => {
    const { page, context } = await withHistory();
    const read = () => readByOther(context, path("other.html"));
    expect((await read()).found).toContainEqual(expect.objectContaining({ source: "letterboxd" }));
    const second = await context.newPage(); // another tab, which has the history open
    await second.goto(page.url());
    await card(second).waitFor();
    await go(page, "history");
    await page.getByText("any HTML file that you open from your disk can read what such pages keep").waitFor();
    await page.getByLabel(NOTHING).check();
    await page.getByText("Nothing is kept: your history is forgotten when you close this tab.").waitFor();
    expect(await read()).toEqual({ found: [], databases: 0 });
    await page.getByRole("heading", { name: "9 entries" }).waitFor(); // for this tab
    await removeColdInk(page, 8);
    await more(second, "Hide only this one");
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

  test("MovieLens ratings of several people, and files that cannot be read", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    const alert = page.getByRole("alert");
    for (const text of ["PK\x03\x04", "I liked Fargo.\n", readFileSync(path("exports/letterboxd.zip")).subarray(0, 400)]) {
      await choose(page, { name: "films.zip", text });
      await alert.getByText("films.zip is not a zip, or is damaged.").waitFor();
      await alert.getByText("What to do: get the file again.").waitFor();
      expect(await page.locator("select:not(.language)").count()).toBe(0); // no question about columns
    }
    await choose(page, { name: "films.csv", text: Buffer.from([0xff, 0xfe, 0x00]) });
    await alert.getByText("films.csv is not text in UTF-8.").waitFor();
    const rows = ["1\tf1\t5\t881250949", "2\tf2\t4\t881250950", "2\tf3\t1\t881250951"].join("\n");
    await choose(page, { name: "u.data", text: `userId\tmovieId\trating\ttimestamp\n${rows}` });
    await page.getByLabel("Your id in the file").fill("2");
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByText("2 titles of u.data found in the catalogue. 1 of them is rated below 3.5 and only counts as seen.").waitFor();
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
    await page.getByText(/titles of ratings.csv found in the catalogue. 1 of them is rated below 3.5/).waitFor();
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
      await clean(opened.page, "refused");
      await opened.context.close();
    }
  });

  test("the page cannot connect, and a person can see that", async () => {
    const { page, context, requests } = await open(browser, path("page/index.html"));
    await go(page, "left");
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
    await card(page).waitFor();
    const [first] = await titles(page);
    server.closeAllConnections();
    server.close();
    await context.setOffline(true);
    await page.reload();
    await card(page).waitFor();
    expect((await titles(page))[0]).toBe(first);
    const others = requests.filter((each) => !each.startsWith(address));
    expect(others).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("the whole way by keyboard alone", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    await walkByKeyboard(page);
    await page.getByText("This page cannot connect to anything.").waitFor();
    await context.close();
  });

  test.each(["de", "fr", "es"] as const)("in a browser of %s no view says anything in English", async (locale) => {
    const { page, context } = await open(browser, path("page/index.html"), { locale });
    const at = { de: 1, fr: 2, es: 3 }[locale];
    const english = Object.values(STRINGS).flatMap((said) => {
      const whole = said[0].split("|").filter((each) => each.length > 3 && !each.includes("{"));
      return whole.filter((each) => !said.slice(at, at + 1).some((other) => other.includes(each)));
    });
    const said = (text: string) => english.filter((each) => text.split("\n").includes(each));
    expect(said(Object.values(STRINGS).map(([each]) => each).join("\n")).length).toBeGreaterThan(100);
    await everyView(page, async (view) => expect(said(await page.locator("body").innerText()), view).toEqual([]));
    expect(await page.evaluate(() => document.documentElement.lang)).toBe(locale);
    await context.close();
  });

  test("the language is chosen, and stays", async () => {
    const { page, context } = await open(browser, path("page/index.html"));
    await page.getByLabel("Language").selectOption("Français");
    await page.getByRole("heading", { name: "Qu’avez-vous vu ?" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Qu’avez-vous vu ?" }).waitFor();
    await context.close();
  });

  describe.each([1280, 390])("at %i pixels", (width) => {
    test.each(["light", "dark"] as const)("%s: no axe violation, nothing wider than the window", async (colorScheme) => {
      const { page, context } = await open(browser, path("page/index.html"), { viewport: { width, height: 900 }, colorScheme });
      await everyView(page, (view) => clean(page, view));
      await context.close();
    });

    test("the navigation is one line", async () => {
      for (const locale of ["en", "de", "fr", "es"]) {
        const { page, context } = await open(browser, path("page/index.html"), { viewport: { width, height: 900 }, locale });
        const boxes = await page.locator("nav a").evaluateAll((links) => links.map((each) => each.getBoundingClientRect().toJSON()));
        expect(new Set(boxes.map(({ top }) => top)).size, locale).toBe(1);
        expect(Math.max(...boxes.map(({ height }) => height)), locale).toBeLessThan(70);
        expect(await page.locator("nav a").evaluateAll((links) => links.every((each) => each.scrollWidth <= each.clientWidth)), locale).toBe(true);
        await context.close();
      }
    });
  });
});
