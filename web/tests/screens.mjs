/**
 * Pictures of every screen of the page and of a device's service, at the widths of a desktop and of a phone, light and
 * dark.
 *
 * node tests/screens.mjs EXAMPLE FOLDER [LANGUAGE]   writes FOLDER/page and FOLDER/service/SCREEN-WIDTH-SCHEME.png
 */

import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./chromium.mjs";
import { openDevice } from "./service.mjs";

const [example = "", folder = "", locale = "en"] = process.argv.slice(2);
const SIZES = [
  { width: 1280, height: 860 },
  { width: 390, height: 844 },
];
const LIBRARY = "title,year\nNight Desk,1966\nTidal Engine,2009\nKite Weather,1994\nRoot Cellar,1994\nGlass Horizon,1996\n";
const OTHERS = "title,year\nBlue Thermos,2010\nFerris Wheel in the Rain,1985\nMoonquake,1958\nPostmistress,1957\n";

const csv = (name, text) => ({ name, mimeType: "text/csv", buffer: Buffer.from(text) });
const zip = { name: "letterboxd.zip", mimeType: "application/zip", buffer: Buffer.from("PK no zip") };
const go = async (page, place) => {
  await page.locator(`nav a[href="#${place}"]`).click();
  await page.locator("main h1").waitFor();
  await page.waitForTimeout(400);
};
const choose = (page, file, place = 0) => page.locator("input[type=file]").nth(place).setInputFiles(file);

/** From the first visit to every screen. */
async function walk(page, take, isService) {
  await page.locator(".welcome").waitFor();
  await take("welcome");
  await choose(page, zip);
  await page.locator(".failed").waitFor();
  await take("damaged");
  await choose(page, join(example, "exports/letterboxd.zip"));
  await page.locator(".film").first().waitFor();
  await take("import");
  await page.reload();
  await page.locator(".film h2").first().waitFor();
  await take("for-you");
  await page.locator(".because summary").first().click();
  await page.locator(".more summary").nth(1).click();
  await take("reasons");
  await page.keyboard.press("Escape");
  await page.locator(".tools .chip").last().click();
  await page.locator("input[type=range]").fill("0.6");
  await page.waitForTimeout(300);
  await take("adjust");
  await page.locator(".more summary").first().click();
  await page.locator(".menu button").first().click();
  await page.locator(".thumbs button").nth(2).waitFor();
  await take("similar");
  await page.keyboard.press("Escape");
  await page.locator(".actions .main").nth(1).click();
  await take("asked");
  await go(page, "history");
  await choose(page, csv("library.csv", LIBRARY), 1);
  await page.locator("[aria-labelledby=list-title] .outcome").waitFor();
  await go(page, "for-you");
  await page.locator(".segments button").nth(1).click();
  await page.waitForTimeout(300);
  await take("mine");
  await page.locator(".segments button").first().click();
  await page.locator(".tools .chip").first().click();
  await page.locator(".panel input").first().fill("Ana");
  await choose(page, csv("ana.csv", OTHERS));
  await page.locator(".film .who").first().waitFor();
  await page.locator(".because summary").first().click();
  await take("together");
  await page.locator(".more summary").first().click();
  await page.locator(".menu button").nth(1).click();
  await page.locator(".said p").waitFor();
  await take("disliked");
  for (const place of ["history", "left", "model"]) {
    await go(page, place);
    await page.evaluate(() => scrollTo(0, 0));
    await take(place);
  }
  if (isService) {
    await go(page, "left");
    await page.locator(".limits details summary").click();
    await page.locator("#limits-title").evaluate((each) => each.scrollIntoView());
    await take("limits");
  }
}

const browser = await launch();
for (const kind of ["page", "service"]) {
  mkdirSync(join(folder, kind), { recursive: true });
  for (const viewport of SIZES) {
    for (const colorScheme of ["light", "dark"]) {
      const device = kind === "service" ? await openDevice(join(example, "device")) : null;
      const page = await (await browser.newContext({ viewport, colorScheme, locale })).newPage();
      page.setDefaultTimeout(20_000);
      const take = (name) => page.screenshot({ path: join(folder, kind, `${name}-${viewport.width}-${colorScheme}.png`) });
      await page.goto(device?.link ?? pathToFileURL(resolve(example, "page/index.html")).href);
      await walk(page, take, device !== null);
      await page.context().close();
      await device?.stop();
    }
  }
}
await browser.close();
