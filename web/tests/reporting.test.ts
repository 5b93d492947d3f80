/** The ledger of a page. What is sent with it to real services: tests/federation/test_reports_run.py. */

import { expect, test } from "vitest";
import { identity, measurements } from "../src/reports";
import { fresh, Ledger } from "../src/reporting";

const HISTORY = [5, 3, 9, 1];
const ALL = measurements(HISTORY, 20);

async function ledger() {
  const saved: number[] = [];
  const made = new Ledger(await fresh(), async (kept) => void saved.push(kept.taken.length));
  return { made, saved };
}

test("everything goes once, and what was not sent goes later", async () => {
  const { made, saved } = await ledger();
  const nights: string[][] = [];
  for (const epoch of [1, 2, 3, 4]) {
    const taken = await made.take(epoch, ALL, 4);
    expect(await made.take(epoch, ALL, 4)).toEqual(taken); // again: the same
    if (epoch === 2) continue; // never handed over
    await made.went(epoch);
    nights.push(taken.map(identity));
  }
  expect(nights.map((each) => each.length)).toEqual([4, 4, 2]);
  expect(new Set(nights.flat())).toEqual(new Set(ALL.map(identity)));
  expect(saved.length).toBe(4 * 2 + 3);
});

test("an item that is deleted is forgotten, and never goes again", async () => {
  const { made } = await ledger();
  await made.take(1, ALL, 6);
  await made.went(1);
  await made.take(2, ALL, 2);
  await made.keepOnly(new Set([5, 3, 1]));
  const named = made.kept.taken.flatMap(({ measurement }) => (measurement ? [measurement.first, measurement.second] : []));
  expect(named).not.toContain(9);
  expect(made.kept.taken.filter((each) => each.gone)).toHaveLength(6);
  const gone = made.kept.taken.filter((each) => each.gone && !each.measurement).length;
  expect(gone).toBeGreaterThan(0);
  const later = await made.take(3, ALL, 20);
  expect(later).toHaveLength(ALL.length - 6); // with 9 again in the history, only what had not gone
});

test("the keys cannot be read by scripts", async () => {
  const { pair } = await fresh();
  await expect(crypto.subtle.exportKey("pkcs8", pair.privateKey)).rejects.toThrow();
});
