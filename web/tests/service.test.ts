/** The screens of a device in Chromium, shown by its service. */

import { readFileSync } from "node:fs";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open, type Opened } from "./browser";
import { CHROMIUM, launch } from "./chromium.mjs";
import { path } from "./example";
import { card, choose, clean, correctMoonquake, everyView, exported, go, more, outcome, removeColdInk, save, titles, walkByKeyboard } from "./history";
import { openDevice } from "./service.mjs";

const WAIT = 60_000;

let browser: Browser;
let running: Awaited<ReturnType<typeof openDevice>>;
beforeAll(async () => {
  if (!CHROMIUM) return;
  [browser, running] = await Promise.all([launch(), openDevice(path("device"))]);
}, 2 * WAIT);
afterAll(async () => {
  await browser?.close();
  await running?.stop();
});

async function opened(options: BrowserContextOptions = {}): Promise<Opened> {
  const found = await open(browser, running.link, options);
  found.context.setDefaultTimeout(WAIT);
  return found;
}

/** A page of a device with the Letterboxd history of the example; whatever was there is deleted. */
async function withHistory(options: BrowserContextOptions = {}): Promise<Opened> {
  const found = await opened(options);
  await empty(found.page);
  await choose(found.page, "letterboxd.zip");
  await card(found.page).waitFor();
  return found;
}

/** Delete everything, and go to the beginning. */
async function empty(page: Page): Promise<void> {
  await go(page, "history");
  await page.getByRole("button", { name: "Delete everything" }).click();
  await page.getByRole("button", { name: "Yes, delete my history here" }).click();
  await page.getByRole("heading", { name: "0 entries" }).waitFor();
  await go(page, "for-you");
  await page.locator(".welcome").waitFor();
}

/** The device keeps who is together with its owner, for the tests that follow. */
async function forgetAna(page: Page): Promise<void> {
  await go(page, "for-you");
  await page.getByRole("button", { name: "Together" }).click();
  await page.getByRole("button", { name: "Forget Ana" }).click();
  await page.getByLabel("Name of the other person").waitFor();
}

describe.skipIf(!CHROMIUM)("the service", { timeout: 3 * WAIT }, () => {
  test("import, recommend, filter, hide, remove and export, without a request elsewhere", async () => {
    const { page, context, requests, complaints } = await withHistory({ acceptDownloads: true });
    expect(page.url()).not.toContain("token"); // it leaves the address bar at once
    expect(await outcome(page)).toMatchObject({ added: "9", "not in the catalogue": "2" });
    await page.getByText("1 title has a similar one in the catalogue").click();
    await page.getByRole("button", { name: "The Robot Gardener 1979" }).click();
    await page.getByText("From 10 titles of your history.").waitFor();
    expect(await page.locator(".film").count()).toBe(24);
    expect(await page.locator(".because").first().innerText()).toMatch(/^(Mostly b|B)ecause of ./);
    await page.getByRole("button", { name: "Adjust" }).click();
    await page.getByLabel("Genre").selectOption("Horror");
    await page.getByLabel("From year").fill("1990");
    await page.getByLabel("From year").press("Enter");
    await expect.poll(async () => (await titles(page)).every((each) => Number(each.slice(-4)) >= 1990), { timeout: WAIT }).toBe(true);
    const [first] = await titles(page);
    for (const action of ["Hide only this one", "Not for me: less like this"]) {
      await more(page, action);
      await expect.poll(() => titles(page), { timeout: WAIT }).not.toContain(first);
      await page.getByRole("button", { name: "Undo" }).click();
      await expect.poll(() => titles(page), { timeout: WAIT }).toContain(first);
    }
    await more(page, "Similar titles");
    await page.locator(".thumbs li").nth(2).waitFor();
    await page.getByRole("button", { name: "Close" }).click();
    await card(page).getByRole("button", { name: "I know it" }).click();
    await card(page).getByRole("button", { name: "Yes" }).click();
    await expect.poll(() => titles(page), { timeout: WAIT }).not.toContain(first);

    await go(page, "history");
    await page.getByRole("heading", { name: "11 entries" }).waitFor();
    await correctMoonquake(page);
    await save(page);
    await page.getByText("Dec 31, 2023 · letterboxd").waitFor();
    await removeColdInk(page, 10);
    const { lines } = await exported(page, "service-history.csv");
    expect(lines[0]).toBe("item,title,time,source,counts");
    expect(lines.length).toBe(11);
    expect(lines.join("\n")).toContain("Second Sun (1990),2023-12-31,letterboxd,yes");

    await page.reload(); // the token stays in this tab
    await page.getByRole("heading", { name: "10 entries" }).waitFor();
    expect(requests.filter((each) => !each.startsWith(running.address) && !each.startsWith("blob:"))).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("a library is chosen from, people are together, and ratings of several people are told apart", async () => {
    const { page, context } = await withHistory();
    await go(page, "history");
    await choose(page, { name: "list.csv", text: "title,year\nNight Desk,1966\nTidal Engine,2009\n" }, 1);
    await page.getByText("2 titles that you own or want to see").waitFor();
    const rows = ["userId\tmovieId\trating\ttimestamp", "1\tf1\t5\t881250949", "2\tf2\t4\t881250950", "2\tf3\t1\t881250951"].join("\n");
    await choose(page, { name: "u.data", text: rows });
    await page.getByLabel("Your id in the file").fill("2");
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByText("2 titles of u.data found in the catalogue. 1 of them is rated below 3.5 and only counts as seen.").waitFor();
    await go(page, "for-you");
    await page.getByRole("button", { name: "Mine only" }).click();
    await expect.poll(async () => (await titles(page)).sort(), { timeout: WAIT }).toEqual(["Night Desk 1966", "Tidal Engine 2009"]);
    await page.getByRole("button", { name: "Not mine" }).click();
    await expect.poll(async () => (await titles(page)).length, { timeout: WAIT }).toBe(24);
    expect(await titles(page)).toEqual(expect.not.arrayContaining(["Night Desk 1966"]));
    await page.getByRole("button", { name: "Together" }).click();
    await page.getByLabel("Name of the other person").fill("Ana");
    await choose(page, { name: "ana.csv", text: "title,year\nThe Postmistress,1957\nKite Weather,1994\n" });
    await page.locator(".film .who").first().waitFor();
    expect(await titles(page)).toEqual(expect.not.arrayContaining(["Kite Weather 1994"])); // she knows it
    await page.getByRole("button", { name: "Forget Ana" }).click();
    await page.getByLabel("Name of the other person").waitFor();
    await context.close();
  });

  test("a damaged zip is said to be damaged", async () => {
    const { page, context } = await opened();
    await empty(page);
    for (const text of ["oops", "PK no zip", "PK\x03\x04", readFileSync(path("exports/letterboxd.zip")).subarray(0, 400)]) {
      await choose(page, { name: "films.zip", text });
      await page.getByRole("alert").getByText("films.zip is not a zip, or is damaged.").waitFor();
    }
    await context.close();
  });

  test("what left is told in plain words, and the owner decides", async () => {
    const { page, context, complaints } = await opened();
    await go(page, "left");
    await page.getByText("7 messages").waitFor();
    const first = page.locator("[aria-labelledby=sent-title] li").first();
    expect(await first.innerText()).toContain("your upload, hidden in a sum over a random part of at least 24 people");
    expect(await first.innerText()).toContain("20.5 kB");
    expect(await first.innerText()).not.toContain("sha256");
    await first.getByText("Advanced").click();
    expect(await first.innerText()).toContain("Protection: hidden in a sum, its length limited to 0.5, noise of 4 times");
    expect(await first.locator("pre").innerText()).toContain('"sha256"');
    const row = page.locator("[aria-labelledby=federations-title] li").first();
    expect(await row.innerText()).toMatch(/3 uploads/);
    expect(await row.innerText()).not.toContain("ε");
    await row.getByText("Advanced").click();
    expect(await row.innerText()).toMatch(/ε = \d/);
    await row.getByRole("button", { name: "Pause" }).click();
    await row.getByText("You have paused. Nothing is sent.").waitFor();
    await row.getByRole("button", { name: "Go on" }).click();
    await row.getByText("You take part.").waitFor();
    await page.locator("[aria-labelledby=federations-title] li").nth(1).getByRole("button", { name: "Leave" }).click();
    await page.locator("[aria-labelledby=federations-title] li").nth(1).getByText("You have left.").waitFor();
    const people = page.getByLabel("people, at least, to be hidden among");
    await people.fill("50");
    await page.getByRole("button", { name: "Save the limits" }).click();
    await page.getByText("The limits are changed.").waitFor();
    await page.reload();
    expect(await people.inputValue()).toBe("50");
    expect(await page.getByLabel("δ that goes with ε").isVisible()).toBe(false);
    await page.getByLabel("devices, at least, that are added up with mine").fill("1");
    await page.getByRole("button", { name: "Save the limits" }).click();
    await page.getByRole("alert").waitFor();
    complaints.splice(0); // the console names the refusal
    await context.close();
  });

  test("a model is updated, taken back, and refused if it was changed", async () => {
    const { page, context } = await opened();
    await go(page, "model");
    const method = (name: string) => page.locator("dd", { hasText: name }).waitFor({ state: "attached" });
    await method("fedslist");
    const bundle = readFileSync(path("2.bundle"));
    const changed = Buffer.from(bundle);
    changed[changed.length >> 1]! ^= 1;
    const choose = (buffer: Buffer) =>
      page.setInputFiles("input[type=file]", { name: "2.bundle", mimeType: "application/zip", buffer });
    await choose(changed);
    await page.getByRole("alert").waitFor();
    await choose(bundle);
    await method("fedease");
    await page.getByRole("button", { name: /^Go back to the model before/ }).click();
    await method("fedslist");
    await context.close();
  });

  test("without its link, and with a wrong one, nothing is shown", async () => {
    for (const [where, said] of [
      [running.address, "opened without its link"],
      [`${running.address}#token=wrong`, "token is missing or wrong"],
    ] as const) {
      const { page, context } = await open(browser, where);
      expect(await page.getByRole("alert").innerText()).toContain(said);
      expect(await page.locator("nav").count()).toBe(0);
      await context.close();
    }
  });

  test("another site can neither frame, read nor change the device", async () => {
    const { page, context } = await open(browser, running.link);
    const token = await page.evaluate(() => sessionStorage.getItem("solera token"));
    const other = await context.newPage();
    await other.goto("data:text/html,<title>evil</title>");
    const tried = await other.evaluate(
      async ([address, secret]) => {
        const send = (path: string, options: RequestInit) =>
          fetch(address + path, options).then(
            (answer) => answer.type,
            () => "refused",
          );
        const headers = { Authorization: `Bearer ${secret}` };
        const frame = document.createElement("iframe");
        frame.src = address!;
        document.body.append(frame);
        await new Promise((resolve) => (frame.onload = resolve));
        return [
          await send("page/history", { headers }),
          await send("page/everything", { method: "DELETE", headers }),
          await send("page/entries", { method: "POST", mode: "cors", body: '{"item": "f1"}' }),
          await send("", {}),
        ];
      },
      [running.address, token],
    );
    expect(tried).toEqual(["refused", "refused", "refused", "refused"]);
    expect(other.frames()[1]!.url()).not.toBe(running.address); // the browser shows its own error there
    await context.close();
  });

  test("what takes long says so, under a heading, and what fails can be tried again", async () => {
    const { page, context, complaints } = await withHistory();
    let answer = () => {};
    const asked = new Promise<void>((resolve) => (answer = resolve));
    await context.route(/\/recommendations\?/, async (route) => {
      await asked;
      await route.continue();
    });
    await page.reload();
    await page.getByRole("status").getByText("Looking for something for you …").waitFor();
    expect(await page.getByRole("heading", { level: 1 }).allInnerTexts()).toEqual(["For you"]);
    await clean(page, "waiting");
    answer();
    await card(page).waitFor();
    await context.unroute(/\/recommendations\?/);
    await context.route(/\/recommendations\?/, (route) => route.abort());
    await page.reload();
    await page.getByRole("alert").getByText("The device does not answer.").waitFor();
    await clean(page, "failed");
    await context.unroute(/\/recommendations\?/);
    await page.getByRole("button", { name: "Try again" }).click();
    await card(page).waitFor();
    complaints.splice(0); // the console names the request that was refused
    await context.close();
  });

  test("what the device tells is told in the reader's language", async () => {
    const { page, context } = await opened({ locale: "de" });
    await go(page, "left");
    await page.getByText("Sie sagte dem Server: deinen Beitrag, verborgen in einer Summe über einen zufälligen Teil von mindestens 24 Personen, dich eingeschlossen, mit Rauschen: Der Server sieht nur die Summe.").first().waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(/\b(the|your|and)\b/);
    await context.close();
  });

  test("the whole way by keyboard alone", async () => {
    const { page, context } = await opened();
    await empty(page);
    await page.reload();
    await page.locator(".welcome").waitFor();
    await walkByKeyboard(page);
    await page.getByText("7 messages").waitFor();
    await forgetAna(page);
    await context.close();
  });

  describe.each([1280, 390])("at %i pixels", (width) => {
    test.each(["light", "dark"] as const)("%s: no axe violation, nothing wider than the window", async (colorScheme) => {
      const { page, context } = await opened({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
      await empty(page);
      await everyView(page, (view) => clean(page, view));
      await forgetAna(page);
      await context.close();
    });
  });

  test("a service that has ended is said", async () => {
    const { page, context } = await opened();
    await go(page, "history");
    running.process.kill();
    await new Promise((resolve) => running.process.on("exit", resolve));
    await go(page, "left");
    await page.getByText("The device does not answer.").waitFor();
    await context.close();
  });
});
