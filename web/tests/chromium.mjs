/** The Chromium of the machine. */

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"].concat(
  ["--disable-background-networking", "--disable-component-update", "--disable-sync"],
);
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const CHROMIUM = process.env.CHROMIUM ?? PLACES.find((place) => existsSync(place));

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}
