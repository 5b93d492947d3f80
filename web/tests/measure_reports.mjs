/**
 * Measure a night of threshold reports in Chromium: bytes, milliseconds, and the size of the script.
 *
 * node tests/measure_reports.mjs [REPORTS [T]]
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { ristretto255_oprf } from "@noble/curves/ed25519.js";
import { DhkemX25519HkdfSha256 } from "@hpke/core";
import { build } from "vite";
import { launch } from "./chromium.mjs";

const TIMES = 5;
const [reports = 210, leastDevices = 20] = process.argv.slice(2).map(Number);
const terms = { federation: "films", epoch: 1, leastDevices, reports };
const scratch = mkdtempSync(join(tmpdir(), "solera-reports-"));
const lib = { entry: "src/reports.ts", formats: ["iife"], name: "reports", fileName: () => "reports.js" };
await build({ configFile: false, logLevel: "error", build: { outDir: scratch, target: "es2022", lib } });
const script = readFileSync(join(scratch, "reports.js"));
writeFileSync(join(scratch, "page.html"), "<!doctype html><title>reports</title><script src=reports.js></script>");

const { voprf } = ristretto255_oprf;
const { secretKey, publicKey } = voprf.generateKeyPair();
const kem = new DhkemX25519HkdfSha256();
const server = await kem.serializePublicKey((await kem.generateKeyPair()).publicKey);
const operators = { helper: [...publicKey], server: [...new Uint8Array(server)] };

const browser = await launch();
const page = await browser.newPage();
await page.goto(pathToFileURL(join(scratch, "page.html")).href);
const [asked, sent] = [[], []];
let bytes = {};
for (let time = 0; time < TIMES; time++) {
  const request = await page.evaluate(ask, terms);
  const elements = Array.from({ length: reports }, (_, n) => Uint8Array.from(request.data.slice(32 * n, 32 * n + 32)));
  const { evaluated, proof } = voprf.blindEvaluateBatch(secretKey, publicKey, elements);
  const answer = [...evaluated, proof].flatMap((each) => [...each]);
  const message = await page.evaluate(send, { answer, operators });
  asked.push(request.milliseconds);
  sent.push(message.milliseconds);
  bytes = { up: request.data.length + message.bytes, down: answer.length };
}
await browser.close();
rmSync(scratch, { recursive: true });

/** The request of a history that fills the message. */
function ask(terms) {
  const history = Array.from({ length: terms.reports }, (_, item) => item);
  const begin = performance.now();
  const taken = reports.measurements(history, 20).slice(0, terms.reports);
  globalThis.night = new reports.Night(terms, crypto.getRandomValues(new Uint8Array(32)), taken);
  const data = [...globalThis.night.request];
  return { data, milliseconds: performance.now() - begin };
}

/** The message. */
async function send({ answer, operators }) {
  const keys = { helper: Uint8Array.from(operators.helper), server: Uint8Array.from(operators.server) };
  const begin = performance.now();
  const message = await globalThis.night.message(Uint8Array.from(answer), keys);
  return { bytes: message.length, milliseconds: performance.now() - begin };
}

const best = (times) => `${Math.round(Math.min(...times))} ms (${times.map(Math.round).join(", ")})`;
console.log(`reports, T            ${reports}, ${leastDevices}`);
console.log(`bytes up, down        ${bytes.up}, ${bytes.down}`);
console.log(`request, best of ${TIMES}    ${best(asked)}`);
console.log(`message, best of ${TIMES}    ${best(sent)}`);
console.log(`script, compressed    ${(script.length / 1e3).toFixed(1)} kB, ${(gzipSync(script).length / 1e3).toFixed(1)} kB`);
