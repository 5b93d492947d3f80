/**
 * A person takes part in a federation from the page of a device, in Chromium.
 *
 * node tests/take_part.mjs LINK INVITATION [PICTURES]
 *
 * LINK is that of `solera device open`. One line of JSON is printed after every step; the next step begins when a line
 * comes in. PICTURES is a folder for pictures of the screen.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import axe from "axe-core";
import { launch } from "./chromium.mjs";

const WAIT = 150_000; // processes start and load torch
const [link, invitation, pictures] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
page.setDefaultTimeout(WAIT);
const complaints = [];
page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(error.message));
const part = page.locator("section.part");
const press = (name) => part.getByRole("button", { name, exact: true }).click();
const told = (hasText) => page.locator(".sent > li > p", { hasText });
const says = (text) => part.locator(".state", { hasText: text }).waitFor();

async function take(name) {
  for (const colorScheme of pictures ? ["light", "dark"] : []) {
    await page.emulateMedia({ colorScheme });
    await part.evaluate((each) => each.scrollIntoView());
    await page.screenshot({ path: join(pictures, `${name}-1280-${colorScheme}.png`) });
  }
}

/** What is wrong with the screen for screen readers, and on a phone. */
async function check(until, text) {
  const phone = await browser.newPage({ viewport: { width: 390, height: 844 }, bypassCSP: true });
  await phone.goto(link);
  await phone.locator('nav a[href="#left"]').click();
  if (text) {
    await phone.getByLabel("Link of the invitation").fill(text);
    await phone.getByRole("button", { name: "Read the invitation" }).click();
  }
  await phone.locator(until).waitFor();
  await phone.evaluate(axe.source);
  const found = await phone.evaluate(async () => (await globalThis.axe.run()).violations);
  complaints.push(...found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`));
  const width = await phone.evaluate(() => document.documentElement.scrollWidth);
  if (width > 390) complaints.push(`the screen is ${width} pixels wide`);
  await phone.close();
}

async function done(step) {
  console.log(JSON.stringify({ step, part: await part.innerText(), page: await page.locator("main").innerText() }));
  await lines.next();
}

await page.goto(link);
await page.getByRole("alert").waitFor(); // the model has not been trained yet
await page.locator('nav a[href="#left"]').click();
await part.getByLabel("Link of the invitation").fill("solera-invitation:nonsense");
await press("Read the invitation");
await part.getByRole("alert").waitFor();
complaints.length = 0; // Chromium names the answer that refused it
const text = readFileSync(invitation, "utf8");
await part.getByLabel("Link of the invitation").fill(text);
await press("Read the invitation");
await part.locator(".asked").waitFor();
await take("part-asked");
await check(".asked", text);
await done("asked");

await press("Agree and take part");
await says("Connected. Waiting for the server to begin.");
await done("connected");

await says("Taking part.");
await part.getByText("2 uploads so far").waitFor();
await told("your upload, which the server can read").nth(1).waitFor();
await told("that the trained model has arrived").waitFor();
await take("part-taking");
await check(".state");
await done("uploaded");

await press("Pause");
await says("Paused.");
await press("Go on");
await says("Taking part.");
await press("Stop");
await says("Stopped.");
await press("Leave");
await press("Yes, leave and delete the key");
await part.getByText("You have left.").waitFor();
await part.getByLabel("Link of the invitation").waitFor();
await done("left");
console.log(JSON.stringify({ step: "end", complaints }));
await browser.close();
process.exit(0);
