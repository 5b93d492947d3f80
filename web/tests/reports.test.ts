/** The page's reports and Python's are of one kind: both operators are Python's, devices are of both. */

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { ristretto255_oprf } from "@noble/curves/ed25519.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { context, encoded, identity, measurements, Night, report, type Terms } from "../src/reports";

const unhex = (text: string) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (data: Uint8Array) => Buffer.from(data).toString("hex");

let python: ChildProcess;
let lines: AsyncIterator<string>;

async function ask<T>(what: object): Promise<T> {
  python.stdin!.write(`${JSON.stringify(what)}\n`);
  return JSON.parse((await lines.next()).value as string) as T;
}

const list = ({ federation, epoch, leastDevices, reports }: Terms) => [federation, epoch, leastDevices, reports];

async function begin(terms: Terms) {
  const found = await ask<Record<"helper" | "server" | "context", string>>({ do: "begin", terms: list(terms) });
  return { helper: unhex(found.helper), server: unhex(found.server), context: found.context };
}

beforeAll(() => {
  python = spawn("python", ["../tools/page/reports_federation.py"], { stdio: ["pipe", "pipe", "inherit"] });
  lines = createInterface({ input: python.stdout! })[Symbol.asyncIterator]();
});
afterAll(() => {
  python.stdin!.end();
});

interface Vector {
  Input: string;
  Blind: string;
  BlindedElement: string;
  EvaluationElement: string;
  Output: string;
  Proof: { proof: string };
}

describe("RFC 9497", () => {
  const rfc = JSON.parse(readFileSync("../tests/privacy/reports/rfc9497.json", "utf8")) as {
    pkSm: string;
    vectors: Vector[];
  };
  test.each(rfc.vectors)("vector %#", (vector) => {
    const [inputs, blinds, blinded, evaluated, outputs] = (
      ["Input", "Blind", "BlindedElement", "EvaluationElement", "Output"] as const
    ).map((name) => vector[name].split(",").map(unhex)) as [Uint8Array[], Uint8Array[], Uint8Array[], Uint8Array[], Uint8Array[]];
    const items = inputs.map((input, n) => ({ input, blind: blinds[n]!, blinded: blinded[n]!, evaluated: evaluated[n]! }));
    const found = ristretto255_oprf.voprf.finalizeBatch(items, unhex(rfc.pkSm), unhex(vector.Proof.proof));
    expect(found.map(hex)).toEqual(outputs.map(hex));
  });
});

test("terms, measurements and reports are the same bytes as Python's", async () => {
  const terms = { federation: "Filme über Käse", epoch: 4_000_000_000, leastDevices: 7, reports: 30 };
  expect((await begin(terms)).context).toBe(hex(context(terms)));
  const history = [5, 3, 70_000, 5, 9, 1, 2, 4_000_000_000];
  for (const ordered of [false, true])
    for (const newest of [1, 3, 20])
      expect(measurements(history, newest, ordered).map((each) => hex(encoded(each)))).toEqual(
        await ask({ do: "measure", history, newest, ordered }),
      );
  const parts = { measurement: "01000000050000000900", output: "ab".repeat(64), point: "cd".repeat(16) };
  const own = await report(terms, unhex(parts.measurement), unhex(parts.output), unhex(parts.point));
  expect(hex(own)).toBe(await ask({ do: "report", ...parts }));
});

test("a pair goes once, in whichever order", () => {
  const [there, back] = [measurements([1, 2], 9, true), measurements([2, 1], 9, true)];
  expect(new Set(there.map(identity))).toEqual(new Set(back.map(identity)));
});

async function send(terms: Terms, operators: { helper: Uint8Array; server: Uint8Array }, device: string, history: number[]) {
  const key = crypto.getRandomValues(new Uint8Array(32));
  const night = new Night(terms, key, measurements(history, 20).slice(0, terms.reports));
  const answer = unhex(await ask<string>({ do: "evaluate", device, request: hex(night.request) }));
  expect(hex(new Night(terms, key, measurements(history, 20).slice(0, terms.reports)).request)).toBe(hex(night.request));
  const message = await night.message(answer, operators);
  await ask({ do: "accept", device, message: hex(message) });
  return { night, answer, message };
}

test("devices of both kinds reach a threshold together", async () => {
  const terms = { federation: "films", epoch: 1, leastDevices: 3, reports: 8 };
  const operators = await begin(terms);
  const { night, answer, message } = await send(terms, operators, "page", [1, 2, 3]);
  expect(message.length).toBe(8 * 139);
  await send(terms, operators, "other page", [2, 1]);
  for (const [device, history] of Object.entries({ a: [1, 2], b: [3, 2] })) await ask({ do: "own", device, history });
  const wrong = { ...operators, helper: operators.server };
  await expect(night.message(answer, wrong)).rejects.toThrow();
  expect(await ask({ do: "end" })).toEqual({
    wrong: 0,
    refused: 0,
    counts: { "00000000010000000100": 3, "00000000020000000200": 4, "01000000010000000200": 3 },
  });
});
