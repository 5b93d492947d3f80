/**
 * Pictures of every screen, at the widths of a desktop and of a phone, light and dark.
 *
 * node tests/screens.mjs EXAMPLE FOLDER        writes FOLDER/SCREEN-WIDTH-SCHEME.png
 */

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./chromium.mjs";

const [example, folder] = process.argv.slice(2);
const SCREENS = { "for-you": "For you", history: "My history", left: "What left this device", model: "Model" };
const SIZES = [
  { width: 1280, height: 860 },
  { width: 390, height: 844 },
];

const browser = await launch();
for (const viewport of SIZES) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await (await browser.newContext({ viewport, colorScheme })).newPage();
    const take = (name) => page.screenshot({ path: join(folder, `${name}-${viewport.width}-${colorScheme}.png`) });
    await page.goto(pathToFileURL(resolve(example, "page/index.html")).href);
    await page.setInputFiles("input[type=file]", join(example, "exports/letterboxd.zip"));
    await page.getByLabel("The Robot Gardner (1979)").selectOption({ index: 1 });
    await page.getByRole("heading", { name: "Import a history" }).scrollIntoViewIfNeeded();
    await take("import");
    await page.getByRole("button", { name: "Accept 1 match" }).click();
    await page.getByRole("button", { name: /^Show what/ }).click();
    await page.waitForSelector(".film");
    for (const [place, name] of Object.entries(SCREENS)) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      await page.evaluate(() => scrollTo(0, 0));
      if (place === "history") await page.getByRole("heading", { name: /entries$/ }).evaluate((each) => each.scrollIntoView());
      await take(place);
    }
    await page.context().close();
  }
}
await browser.close();
