/**
 * Pictures of every screen of a device's service, at the widths of a desktop and of a phone, light and dark.
 *
 * node tests/service_screens.mjs EXAMPLE FOLDER        writes FOLDER/SCREEN-WIDTH-SCHEME.png
 */

import { join } from "node:path";
import { launch } from "./chromium.mjs";
import { openDevice } from "./service.mjs";

const [example = "", folder = ""] = process.argv.slice(2);
const SCREENS = { "for-you": "For you", history: "My history", left: "What left this device", model: "Model" };
const SIZES = [
  { width: 1280, height: 860 },
  { width: 390, height: 844 },
];
const LIST = "title,year\nNight Desk,1966\nTidal Engine,2009\nKite Weather,1994\nRoot Cellar,1994\n";

const device = await openDevice(join(example, "device"));
const browser = await launch();
const put = async (page, file, said) => {
  await page.setInputFiles("input[type=file]", file);
  await page.getByRole("row", { name: said }).waitFor();
};
for (const viewport of SIZES) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await (await browser.newContext({ viewport, colorScheme })).newPage();
    page.setDefaultTimeout(120_000);
    await page.goto(device.link);
    await page.getByRole("link", { name: "My history" }).click();
    await put(page, join(example, "exports/letterboxd.zip"), /^(added|known already) 9$/);
    await page.getByLabel("It is a watchlist or library").check();
    await put(page, { name: "list.csv", mimeType: "text/csv", buffer: Buffer.from(LIST) }, /^(added|known already) 4$/);
    for (const [place, name] of Object.entries(SCREENS)) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      await page.evaluate(() => scrollTo(0, 0));
      if (place === "for-you") await page.getByLabel(/^Only from my list/).waitFor();
      if (place === "history") await page.getByRole("heading", { name: /entries$/ }).evaluate((each) => each.scrollIntoView());
      await page.screenshot({ path: join(folder, `${place}-${viewport.width}-${colorScheme}.png`) });
    }
    await page.context().close();
  }
}
await browser.close();
await device.stop();
