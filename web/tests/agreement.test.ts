/** The page and the Python library give the same scores, titles and imports. */

import { describe, expect, test } from "vitest";
import { readBundle } from "../src/bundle";
import { Catalogue } from "../src/catalogue";
import { readFile } from "../src/importing";
import { best, modelOf } from "../src/model";
import { plain, splitYear, titlesIn } from "../src/text";
import { bytes, json } from "./example";

interface Scored {
  history: number[];
  items: number[];
  scores: number[];
  popular?: number;
  parts?: number[];
}

interface Vectors {
  models: Record<string, Scored[]>;
  titles: {
    plain: [string, string, [string, number | null], string[]][];
    characters: [string, string][];
    match: [string, number | null, string | null, string[]][];
  };
  imports: {
    file: string;
    entries: unknown[];
    used: Record<string, number>;
    unused: string[];
    leftOut: Record<string, number>;
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

  test("parts of a score add up to it", async () => {
    const model = modelOf(await readBundle(bytes(`${name}.bundle`)));
    const explained = cases.filter((each) => each.parts !== undefined);
    expect(explained.length).toBeGreaterThan(0);
    for (const { history, items, scores, popular, parts = [] } of explained) {
      const found = model.parts(history, items[0]!);
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

test.each(vectors.imports.map((each) => [each.file, each] as const))("%s is read the same", async (file, wanted) => {
  const read = await readFile(file, bytes(`exports/${file}`), {});
  if (!("reading" in read)) throw new Error("a question");
  expect(read.reading.entries).toEqual(wanted.entries);
  expect(read.reading.leftOut).toEqual(wanted.leftOut);
  if (file.endsWith(".zip")) {
    expect(read.reading.used).toEqual(wanted.used);
    expect(read.reading.unused).toEqual(wanted.unused);
  }
});
