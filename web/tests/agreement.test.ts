/** The page and the Python library give the same scores, titles and imports. */

import { describe, expect, test } from "vitest";
import { BrowserDevice } from "../src/browser_device";
import { readBundle } from "../src/bundle";
import type { Recommendation } from "../src/device";
import { Catalogue, closeMatches } from "../src/catalogue";
import { seconds } from "../src/entry";
import { readFile } from "../src/importing";
import { modelOf } from "../src/model";
import { best } from "../src/scoring";
import { Store } from "../src/store";
import { plain, splitYear, titlesIn } from "../src/text";
import { bytes, json } from "./example";

interface Scored {
  history: number[];
  items: number[];
  scores: number[];
  popular: number | null;
  parts: number[] | null;
}

/** An item, its score, what raised it, and the other person's reasons. */
type Listed = [string, number, number, string[][]];

interface Vectors {
  taste: Record<string, { liked: string[]; disliked: string; others: string[]; alone: Listed[]; together: Listed[] }>;
  models: Record<string, Scored[]>;
  similar: Record<string, [number, number[]][]>;
  titles: {
    words: string[];
    close: string[][];
    seconds: [string, number | null][];
    plain: [string, string, [string, number | null], string[]][];
    characters: [string, string][];
    match: [string, number | null, string | null, string[]][];
  };
  imports: {
    file: string;
    entries: unknown[];
    report: Record<string, unknown>;
    unmatched: [string, string[]][];
    recommended: [string, string[]][];
  }[];
}

const CLOSE = 1e-5;
const vectors = json<Vectors>("vectors.json");

describe.each(Object.keys(vectors.models))("%s", (name) => {
  const cases = vectors.models[name] ?? [];

  test(`scores and order for ${cases.length} histories`, async () => {
    const model = modelOf(await readBundle(bytes(`${name}.bundle`)));
    expect(cases.length).toBeGreaterThan(0);
    for (const { history, items, scores } of cases) {
      const found = model.scores(history);
      const seen = new Set(history);
      const rows = best(found, (row) => !seen.has(row), 100);
      expect(rows.length).toBe(items.length);
      let worst = 0;
      items.forEach((row, place) => {
        worst = Math.max(worst, Math.abs(found[row]! - scores[place]!));
        // Another item may stand here only if Python gives both the same score in single precision.
        if (rows[place] !== row) worst = Math.max(worst, 100 * Math.abs(found[rows[place]!]! - scores[place]!));
      });
      expect(worst).toBeLessThan(CLOSE);
    }
  });

  test("the same items are similar", async () => {
    const model = modelOf(await readBundle(bytes(`${name}.bundle`)));
    for (const [row, wanted] of vectors.similar[name]!) {
      const found = model.similar(row);
      expect(best(found, (each) => each !== row && found[each]! > 0, wanted.length)).toEqual(wanted);
    }
  });

  test("parts of a score add up to it, where it is a sum", async () => {
    const model = modelOf(await readBundle(bytes(`${name}.bundle`)));
    for (const { history, items, scores, popular, parts } of cases.slice(0, 50)) {
      const found = model.parts(history, items[0]!);
      if (parts === null) {
        expect(found).toBeNull();
        continue;
      }
      if (found === null) throw new Error("no parts");
      expect(found.popular).toBeCloseTo(popular!, 5);
      parts.forEach((part, place) => expect(found.ofHistory[place]).toBeCloseTo(part, 5));
      expect(found.popular + found.ofHistory.reduce((sum, each) => sum + each, 0)).toBeCloseTo(scores[0]!, 5);
    }
  });
});

test("titles are compared in the same form", () => {
  for (const [title, plainly, split, inside] of vectors.titles.plain) {
    expect(plain(title), title).toBe(plainly);
    expect(splitYear(title), title).toEqual(split);
    expect(titlesIn(title), title).toEqual(inside);
  }
  const wrong = vectors.titles.characters.filter(([each, plainly]) => plain(`a${each}b`) !== plainly);
  expect(wrong).toEqual([]);
});

test("close words are the same, in the same order", () => {
  const { words, close } = vectors.titles;
  expect(words.map((word) => closeMatches(word, words, 3, 0.6))).toEqual(close);
});

test("the same films are matched and suggested", async () => {
  const catalogue = new Catalogue((await readBundle(bytes("fedslist.bundle"))).items);
  const asked = vectors.titles.match;
  expect(asked.filter(([, , found]) => found !== null).length).toBeGreaterThan(20);
  expect(asked.filter(([, , found, near]) => found === null && near.length).length).toBeGreaterThan(5);
  for (const [title, year, found, near] of asked) {
    expect(catalogue.match(title, year)?.id ?? null, title).toBe(found);
    expect(catalogue.near(title, year).map((item) => item.id), title).toEqual(near);
  }
});

test("times are read the same", () => {
  for (const [text, time] of vectors.titles.seconds) expect(seconds(text), text).toBe(time);
  for (const text of ["2023-02-29", "2024-13-01", "soon", "2024-05-01T25:00", "1e5"]) {
    expect(() => seconds(text), text).toThrow(RangeError);
  }
});

describe.each(vectors.imports.map((each) => [each.file, each] as const))("%s", (file, wanted) => {
  test("is read the same", async () => {
    const read = await readFile(file, bytes(`exports/${file}`), {});
    if (!("reading" in read)) throw new Error("a question");
    expect(read.reading.entries).toEqual(wanted.entries);
  });

  test("gives the same report and the same recommendations with the same reasons", async () => {
    const device = new BrowserDevice(await readBundle(bytes("fedslist.bundle")), await Store.open("test"));
    const report = await device.importFile(new File([bytes(`exports/${file}`)], file), {});
    if ("form" in report) throw new Error("a question");
    const { leftOut: left_out, unmatched, ...rest } = report;
    expect({ ...rest, left_out }).toMatchObject(wanted.report);
    expect(unmatched.map(({ title, near }) => [title, near.map((item) => item.id)])).toEqual(wanted.unmatched);
    const shown = await device.recommend({}, 10);
    const ids = shown.map(({ item, because }) => [item.id, because?.reasons.map((each) => each.item.id)]);
    expect(ids).toEqual(wanted.recommended);
    expect(shown.every(({ because }) => because?.reasons.length && because.reasons.every(({ part }) => part > 0))).toBe(true);
    const again = await device.importFile(new File([bytes(`exports/${file}`)], file), {});
    expect(again).toMatchObject({ added: 0, known: report.added });
  });
});

describe.each(Object.keys(vectors.taste))("%s: the same list", (name) => {
  const { liked, disliked, others, alone, together } = vectors.taste[name]!;
  const close = (found: Recommendation[], wanted: Listed[]) => {
    expect(found.map(({ item }) => item.id)).toEqual(wanted.map(([item]) => item));
    found.forEach(({ score, because, theirs }, place) => {
      const [, least, raised, ofOthers] = wanted[place]!;
      expect(score).toBeCloseTo(least, 5);
      expect(because?.raised ?? 0).toBeCloseTo(raised, 5);
      expect(theirs.map((each) => each.reasons.map(({ item }) => item.id))).toEqual(ofOthers);
    });
  };

  test("after a dislike, and for two people together", async () => {
    const device = new BrowserDevice(await readBundle(bytes(`${name}.bundle`)), await Store.open("taste"));
    for (const [at, item] of liked.entries()) await device.add(item, at, true);
    await device.choose(disliked, { disliked: true });
    close(await device.recommend({}, alone.length), alone);
    const file = new File([`item,time\n${others.map((item, at) => `${item},${at}`).join("\n")}\n`], "ana.csv");
    await device.importFile(file, { person: "Ana" });
    expect(await device.people()).toEqual(["Ana"]);
    close(await device.recommend({ along: ["Ana"] }, together.length), together);
    await device.forgetPerson("Ana");
    expect(await device.people()).toEqual([]);
  });
});
