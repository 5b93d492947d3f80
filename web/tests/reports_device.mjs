/**
 * A device of threshold reports in Chromium, for the tests: one JSON document a line, in and out.
 *
 * node tests/reports_device.mjs AGREEMENT     prints {"key": line}; then for every history {"epoch": number}
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { build } from "vite";
import { launch } from "./chromium.mjs";

const ATTEMPTS = 200; // services are killed while it asks
const agreed = JSON.parse(process.argv[2]);
const scratch = mkdtempSync(join(tmpdir(), "solera-reports-"));
const lib = { entry: "src/reporting.ts", formats: ["iife"], name: "reporting", fileName: () => "reporting.js" };
await build({ configFile: false, logLevel: "error", build: { outDir: scratch, target: "es2022", lib } });
writeFileSync(join(scratch, "page.html"), "<!doctype html><title>reports</title><script src=reporting.js></script>");
const browser = await launch();
const page = await browser.newPage();
await page.goto(pathToFileURL(join(scratch, "page.html")).href);
const key = await page.evaluate(async () => {
  globalThis.ledger = new reporting.Ledger(await reporting.fresh(), async () => undefined);
  return reporting.publicLine(globalThis.ledger.kept.pair);
});
console.log(JSON.stringify({ key }));
for await (const line of createInterface({ input: process.stdin })) {
  const given = { agreed, history: JSON.parse(line), attempts: ATTEMPTS };
  const epoch = await page.evaluate(
    ({ agreed, history, attempts }) => reporting.send(agreed, globalThis.ledger, history, attempts),
    given,
  );
  console.log(JSON.stringify({ epoch }));
}
await browser.close();
rmSync(scratch, { recursive: true });
