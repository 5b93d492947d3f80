/** Find items of the catalogue by the titles in people's exports, as the Python importer does. */

import type { Item } from "./bundle";
import { plain, splitYear, titlesIn } from "./text";

/** Whether an item may be of a year: years may be one apart, and an unknown year fits all. */
export function fits(item: Item, year: number | null): boolean {
  return item.year === null || year === null || Math.abs(item.year - year) <= 1;
}

export class Catalogue {
  readonly number: Map<string, number>;
  private titles: Map<string, Item[]> | null = null;
  private years: Map<number | null, Set<string>> | null = null;

  constructor(readonly items: Item[]) {
    this.number = new Map(items.map((item, row) => [item.id, row]));
  }

  private byTitle(): Map<string, Item[]> {
    if (this.titles) return this.titles;
    this.titles = new Map();
    for (const item of this.items) {
      for (const title of titlesIn(item.title)) {
        const held = this.titles.get(title);
        if (held) held.push(item);
        else this.titles.set(title, [item]);
      }
    }
    return this.titles;
  }

  private byYear(): Map<number | null, Set<string>> {
    if (this.years) return this.years;
    this.years = new Map();
    for (const [title, items] of this.byTitle()) {
      for (const { year } of items) {
        const held = this.years.get(year);
        if (held) held.add(title);
        else this.years.set(year, new Set([title]));
      }
    }
    return this.years;
  }

  /** The item of a title, if there is one and no doubt which. */
  match(title: string, year: number | null = null): Item | null {
    const [name, wanted] = year === null ? splitYear(title) : [title, year];
    let found = this.byTitle().get(plain(name)) ?? [];
    if (wanted !== null) {
      found = found.filter((item) => fits(item, wanted));
      const exact = found.filter((item) => item.year === wanted);
      found = exact.length ? exact : found;
    }
    return new Set(found.map((item) => item.year)).size === 1 ? (found[0] ?? null) : null;
  }

  /** The plain titles that a title is compared with: those of its year, or all if it has none. */
  rivals(name: string, year: number | null): string[] {
    if (year === null) return [...this.byTitle().keys()];
    const years = [year, year - 1, year + 1, null];
    const ofYear = years.flatMap((each) => [...(this.byYear().get(each) ?? [])]);
    const same = plain(name);
    return this.byTitle().has(same) ? [same, ...ofYear] : ofYear;
  }

  /** Items with similar titles, as suggestions; of a title with a year, those of about that year. */
  near(title: string, year: number | null = null, count = 3): Item[] {
    const [name, inTitle] = splitYear(title);
    const wanted = year ?? inTitle;
    const keys = closeMatches(plain(name), this.rivals(title, wanted), count, 0.75);
    const found = new Map(keys.flatMap((key) => this.byTitle().get(key) ?? []).map((item) => [item.id, item]));
    const off = (item: Item) => (fits(item, wanted) ? 0 : 1);
    return [...found.values()].sort((a, b) => off(a) - off(b)).slice(0, count);
  }

  /** Items whose title contains a text, for people who type. */
  search(text: string, count = 8): Item[] {
    const wanted = plain(text);
    if (!wanted) return [];
    const found = this.items.filter((item) => plain(item.title).includes(wanted));
    const late = (item: Item) => (titlesIn(item.title).some((each) => each.startsWith(wanted)) ? 0 : 1);
    return found.sort((a, b) => late(a) - late(b)).slice(0, count);
  }
}

/** The candidates most similar to a word, best first: difflib.get_close_matches of Python. */
export function closeMatches(word: string, candidates: string[], count: number, cutoff: number): string[] {
  const scored: [number, string][] = [];
  for (const each of candidates) {
    const total = each.length + word.length;
    if (total && (2 * Math.min(each.length, word.length)) / total < cutoff) continue;
    if (total && (2 * sharedLetters(each, word)) / total < cutoff) continue;
    const ratio = total ? (2 * matchingLetters(each, word)) / total : 1;
    if (ratio >= cutoff) scored.push([ratio, each]);
  }
  scored.sort(([a, first], [b, second]) => b - a || (first < second ? 1 : first > second ? -1 : 0));
  return scored.slice(0, count).map(([, each]) => each);
}

/** An upper bound of the matching letters: how many both have, in any order. */
function sharedLetters(a: string, b: string): number {
  const left = new Map<string, number>();
  for (const letter of b) left.set(letter, (left.get(letter) ?? 0) + 1);
  let shared = 0;
  for (const letter of a) {
    const count = left.get(letter) ?? 0;
    if (count > 0) shared += 1;
    left.set(letter, count - 1);
  }
  return shared;
}

/** Ratcliff and Obershelp: the longest common piece, then the same on both of its sides. */
function matchingLetters(a: string, b: string): number {
  if (!a || !b) return 0;
  let [beginA, beginB, size] = [0, 0, 0];
  let before = new Int32Array(b.length + 1);
  for (let i = 0; i < a.length; i++) {
    const now = new Int32Array(b.length + 1);
    for (let j = 0; j < b.length; j++) {
      if (a[i] !== b[j]) continue;
      const length = (before[j] ?? 0) + 1;
      now[j + 1] = length;
      if (length > size) [beginA, beginB, size] = [i - length + 1, j - length + 1, length];
    }
    before = now;
  }
  if (!size) return 0;
  const left = matchingLetters(a.slice(0, beginA), b.slice(0, beginB));
  return left + size + matchingLetters(a.slice(beginA + size), b.slice(beginB + size));
}
