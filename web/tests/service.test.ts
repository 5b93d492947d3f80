/** The screens of a device in Chromium, shown by its service. */

import { readFileSync } from "node:fs";
import axe from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open, type Opened } from "./browser";
import { CHROMIUM, launch } from "./chromium.mjs";
import { path } from "./example";
import { correctMoonquake, exported, removeColdInk, save } from "./history";
import { openDevice } from "./service.mjs";

const WAIT = 60_000; // the first recommendation loads torch

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

const titles = (page: Page) => page.locator(".film h2").allInnerTexts();
const go = (page: Page, name: string) => page.getByRole("link", { name, exact: true }).click();

/** A page of a device with the Letterboxd history of the example; whatever was there is deleted. */
async function withHistory(options: BrowserContextOptions = {}): Promise<Opened> {
  const found = await opened(options);
  const { page } = found;
  await go(page, "My history");
  await page.getByRole("button", { name: "Delete everything" }).click();
  await page.getByRole("button", { name: "Yes, delete my history here" }).click();
  await page.getByRole("heading", { name: "0 entries" }).waitFor();
  await page.setInputFiles("input[type=file]", path("exports/letterboxd.zip"));
  await page.getByRole("row", { name: "added 9" }).waitFor();
  return found;
}

describe.skipIf(!CHROMIUM)("the service", { timeout: 3 * WAIT }, () => {
  test("import, recommend, filter, hide, remove and export, without a request elsewhere", async () => {
    const { page, context, requests, complaints } = await withHistory({ acceptDownloads: true });
    expect(page.url()).not.toContain("token"); // it leaves the address bar at once
    await page.getByLabel("The Robot Gardner (1979)").selectOption("Robot Gardener, The (1979)");
    await page.getByRole("button", { name: "Accept 1 match" }).click();
    await page.getByText("1 entry added.").waitFor();

    await go(page, "For you");
    await page.waitForSelector(".film");
    expect(await page.locator(".film").count()).toBe(24);
    expect(await page.locator(".because").first().innerText()).toMatch(/^because of .+ \d{4}/);
    await page.getByLabel("Genre").selectOption("Horror");
    await page.getByLabel("From year").fill("1990");
    await page.getByLabel("From year").press("Enter");
    await expect.poll(async () => (await titles(page)).every((each) => Number(each.slice(-4)) >= 1990), { timeout: WAIT }).toBe(true);
    const [first] = await titles(page);
    await page.locator(".film").first().getByRole("button", { name: "Hide" }).click();
    await expect.poll(() => titles(page), { timeout: WAIT }).not.toContain(first);
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => titles(page), { timeout: WAIT }).toContain(first);
    await page.locator(".film").first().getByRole("button", { name: "Similar" }).click();
    await page.locator(".similar li").nth(2).waitFor();
    await page.locator(".film").first().getByRole("button", { name: /^Seen (?!and)/ }).click();
    await expect.poll(() => titles(page), { timeout: WAIT }).not.toContain(first);

    await go(page, "My history");
    await page.getByRole("heading", { name: "11 entries" }).waitFor();
    await correctMoonquake(page);
    await save(page);
    await page.getByText("2023-12-31 · letterboxd").waitFor();
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

  test("a watchlist is chosen from, and ratings of several people are told apart", async () => {
    const { page, context } = await withHistory();
    await page.getByLabel("It is a watchlist or library").check();
    const list = "title,year\nNight Desk,1966\nTidal Engine,2009\n";
    await page.setInputFiles("input[type=file]", { name: "list.csv", mimeType: "text/csv", buffer: Buffer.from(list) });
    await page.getByRole("row", { name: "added 2" }).waitFor();
    await page.getByLabel("It is a watchlist or library").uncheck();
    const rows = ["userId\tmovieId\trating\ttimestamp", "1\tf1\t5\t881250949", "2\tf2\t4\t881250950", "2\tf3\t1\t881250951"].join("\n");
    await page.setInputFiles("input[type=file]", { name: "u.data", mimeType: "text/plain", buffer: Buffer.from(rows) });
    await page.getByLabel("Your id in the file").fill("2");
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByText("2 films of u.data found in the catalogue, 1 of them rated below 3.5: seen only.").waitFor();
    await go(page, "For you");
    await page.getByLabel("Only from my list or library (2)").check();
    await expect.poll(() => titles(page), { timeout: WAIT }).toHaveLength(2);
    expect((await titles(page)).map((each) => each.slice(0, 5)).sort()).toEqual(["Night", "Tidal"]);
    await context.close();
  });

  test("what left is told in plain words, and the owner decides", async () => {
    const { page, context, complaints } = await opened();
    await go(page, "What left this device");
    await page.getByText("7 messages").waitFor();
    const first = page.locator(".sent > li").first();
    expect(await first.innerText()).toContain("your upload, hidden in a sum over a random part of at least 24 people");
    expect(await first.innerText()).toContain("20,541 bytes");
    expect(await first.innerText()).toContain("Protection: hidden in a sum, its length limited to 0.5, noise of 4 times");
    await first.getByText("Raw record").click();
    expect(await first.locator("pre").innerText()).toContain('"sha256"');
    const row = page.locator(".federations > li").first();
    expect(await row.innerText()).toMatch(/3 uploads · spent: ε = \d/);
    await row.getByRole("button", { name: "Pause" }).click();
    await row.getByText("You have paused. Nothing is sent.").waitFor();
    await row.getByRole("button", { name: "Go on" }).click();
    await row.getByText("You take part.").waitFor();
    await page.locator(".federations > li").nth(1).getByRole("button", { name: "Leave" }).click();
    await page.locator(".federations > li").nth(1).getByText("You have left.").waitFor();
    await page.getByLabel("Users that a masked sum is over, at the least.").fill("50");
    await page.getByRole("button", { name: "Save the limits" }).click();
    await page.getByText("The limits are changed.").waitFor();
    await page.reload();
    expect(await page.getByLabel("Users that a masked sum is over, at the least.").inputValue()).toBe("50");
    await page.getByLabel("Nodes that a masked sum is over, at the least.").fill("1");
    await page.getByRole("button", { name: "Save the limits" }).click();
    await page.getByRole("alert").waitFor();
    complaints.splice(0); // the console names the refusal
    await context.close();
  });

  test("a model is updated, taken back, and refused if it was changed", async () => {
    const { page, context } = await opened();
    await go(page, "Model");
    await page.getByText("fedslist").waitFor();
    const bundle = readFileSync(path("2.bundle"));
    const changed = Buffer.from(bundle);
    changed[changed.length >> 1]! ^= 1;
    const choose = (buffer: Buffer) =>
      page.setInputFiles("input[type=file]", { name: "2.bundle", mimeType: "application/zip", buffer });
    await choose(changed);
    await page.getByRole("alert").waitFor();
    await choose(bundle);
    await page.getByText("fedease").waitFor();
    await page.getByRole("button", { name: /^Go back to the model before/ }).click();
    await page.getByText("fedslist").waitFor();
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

  test("what takes long says so, under a heading, until the answer is there", async () => {
    const { page, context } = await opened();
    let answer = () => {};
    const asked = new Promise<void>((resolve) => (answer = resolve));
    await context.route(/\/recommendations\?/, async (route) => {
      await asked;
      await route.continue();
    });
    await page.reload();
    await page.getByRole("status").getByText("Looking for films …").waitFor();
    expect(await page.getByRole("heading", { level: 1 }).allInnerTexts()).toEqual(["For you"]);
    answer();
    await page.getByText("Looking for films …").waitFor({ state: "detached" });
    await context.close();
  });

  describe.each([1280, 390])("at %i pixels", (width) => {
    test.each(["light", "dark"] as const)("%s: no axe violation, nothing wider than the window", async (colorScheme) => {
      const { page, context } = await withHistory({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
      await page.evaluate(axe.source);
      const check = async (screen: string) => {
        const found = await page.evaluate(async () => {
          const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
          return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
        });
        expect(found, screen).toEqual([]);
        expect(await page.evaluate(() => document.documentElement.scrollWidth), screen).toBeLessThanOrEqual(width);
      };
      await page.getByRole("button", { name: /^Correct/ }).first().click();
      await check("history");
      await go(page, "For you");
      await page.locator(".film").first().getByRole("button", { name: "Similar" }).click();
      await page.locator(".similar li").first().waitFor();
      await check("for you");
      await go(page, "What left this device");
      await page.getByText("Raw record").first().click();
      await check("left");
      await go(page, "Model");
      await page.getByText("Update from a bundle").waitFor();
      await check("model");
      await context.close();
    });
  });

  test("everything is reached with the keyboard", async () => {
    const { page, context } = await opened();
    await page.keyboard.press("Tab");
    expect(await page.locator(":focus").innerText()).toBe("Skip to content");
    for (const name of ["For you", "My history", "What left this device", "Model"]) {
      await page.keyboard.press("Tab");
      expect(await page.locator(":focus").innerText()).toBe(name);
    }
    await page.keyboard.press("Enter");
    await page.getByText("Update from a bundle").waitFor();
    await page.locator("input[type=file]").focus();
    expect(await page.locator(":focus").getAttribute("type")).toBe("file");
    await context.close();
  });

  test("a service that has ended is said", async () => {
    const { page, context } = await opened();
    await go(page, "My history");
    running.process.kill();
    await new Promise((resolve) => running.process.on("exit", resolve));
    await go(page, "What left this device");
    await page.getByText("The device does not answer.").waitFor();
    await context.close();
  });
});
