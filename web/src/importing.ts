/** Read a person's file, and find its titles in the catalogue. */

import type { Item } from "./bundle";
import type { Catalogue } from "./catalogue";
import { parseCsv } from "./csv";
import type { ImportOptions, Question, Unmatched } from "./device";
import { decoded, type Entry, LIKE_FROM, Reading } from "./entry";
import { PageError } from "./errors";
import { isLetterboxd, readLetterboxdCsv, readLetterboxdZip } from "./letterboxd";
import { formOf, readTable, usersOf } from "./table";
import { plain, splitYear } from "./text";
import { isZip } from "./zip";

const MOST_BYTES = 1 << 28;
const COMPARED = 200_000; // pairs of titles that are compared to suggest near ones

/** The entries of a file by its kind, or what has to be asked first. */
export async function readFile(
  name: string,
  bytes: Uint8Array<ArrayBuffer>,
  { likeFrom, columns, user }: ImportOptions,
): Promise<{ reading: Reading; source: string } | Question> {
  if (bytes.length > MOST_BYTES) {
    throw new PageError(`${name} has more than ${MOST_BYTES.toLocaleString("en")} bytes`, "export a shorter period");
  }
  const reading = new Reading(likeFrom ?? LIKE_FROM);
  let source = "letterboxd";
  if (isZip(bytes) || name.toLowerCase().endsWith(".zip")) await readLetterboxdZip(reading, bytes, name);
  else {
    const text = decoded(bytes, name);
    if (!columns && isLetterboxd(parseCsv(text).next().value?.fields ?? [])) readLetterboxdCsv(reading, text, name);
    else {
      source = "csv";
      const guessed = formOf(text);
      const form = columns ? { ...guessed, columns } : guessed;
      const users = usersOf(text, form);
      const unclear = !form.columns.item && !form.columns.title;
      if (unclear && form.header.length < 2) {
        throw new PageError(`${name} is not a table of titles`, "give a CSV file whose first line names its columns, such as title,year");
      }
      if (unclear || (users.length > 1 && (user === undefined || !users.includes(user)))) return { form, users };
      readTable(reading, text, name, form, { user, ofFive: likeFrom === undefined });
    }
  }
  if (!reading.entries.length) {
    const reasons = Object.entries(reading.leftOut).map(([reason, count]) => `${count} × ${reason}`);
    const why = [...reading.faults, ...reasons].join("; ") || "it is empty";
    throw new PageError(`${name} has no row that can be used: ${why}`, "check that it is the right file");
  }
  return { reading, source };
}

/** The key of a title under which a match is remembered. */
export function aliasKey(title: string, year: number | null): string {
  const [name, inTitle] = year === null ? splitYear(title) : [title, year];
  return `${plain(name)}|${inTitle ?? ""}`;
}

export interface Found {
  /** Entries whose items are in the catalogue, with the item's row. */
  matched: [number, Entry][];
  /** The others, by title and year. */
  missed: Map<string, Entry[]>;
}

export function findAll(entries: Entry[], catalogue: Catalogue, aliases: Map<string, string>): Found {
  const found: Found = { matched: [], missed: new Map() };
  const known = new Map<string, number | null>();
  for (const entry of entries) {
    const key = missedKey(entry);
    const own = entry.item === null ? undefined : catalogue.number.get(entry.item);
    let row: number | null = own ?? null;
    if (own === undefined && entry.title !== entry.item) {
      // an id alone is no title: a film may be called 1984 as well
      const before = known.get(key);
      row = before === undefined ? rowOf(entry, catalogue, aliases) : before;
      known.set(key, row);
    }
    if (row !== null) found.matched.push([row, entry]);
    else found.missed.set(key, [...(found.missed.get(key) ?? []), entry]);
  }
  return found;
}

function rowOf(entry: Entry, catalogue: Catalogue, aliases: Map<string, string>): number | null {
  const [name] = entry.year === null ? splitYear(entry.title) : [entry.title];
  const alias = aliases.get(aliasKey(entry.title, entry.year)) ?? aliases.get(`${plain(name)}|`);
  const row = alias === undefined ? undefined : catalogue.number.get(alias);
  if (row !== undefined) return row;
  const item = catalogue.match(entry.title, entry.year);
  return item === null ? null : (catalogue.number.get(item.id) ?? null);
}

export function missedKey({ title, year }: { title: string; year: number | null }): string {
  return `${title}|${year ?? ""}`;
}

/** The titles that are not in the catalogue, with near ones as long as comparing them is quick. */
export function unmatchedOf({ missed }: Found, catalogue: Catalogue): Unmatched[] {
  let compared = 0;
  return [...missed.values()].map((entries) => {
    const { title, year } = entries[0] as Entry;
    if (compared < COMPARED) compared += catalogue.rivals(title, year).length;
    const near: Item[] = compared <= COMPARED ? catalogue.near(title, year) : [];
    return { title, year, times: entries.length, near };
  });
}
