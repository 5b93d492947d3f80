/** One line of a history from elsewhere, and what the readers have in common: the rules of the Python importer. */

import { PageError } from "./errors";
import { cleanText } from "./text";

/** What was met and when, in Unix seconds. `liked` is null where nothing says whether it was. */
export interface Entry {
  title: string;
  year: number | null;
  time: number | null;
  item: string | null;
  liked: boolean | null;
}

export const LIKE_FROM = 3.5; // of 5 stars
const LONGEST_NAME = 500;
const MOST_ROWS = 2_000_000;
const FAULTS = 3; // bad rows that are described

/** What became of a file's rows: counted by file, left out by reason, and what is wrong with the first bad ones. */
export class Reading {
  entries: Entry[] = [];
  used: Record<string, number> = {};
  unused: string[] = [];
  leftOut: Record<string, number> = {};
  faults: string[] = [];
  private rows = 0;

  constructor(readonly likeFrom: number) {}

  liked(rating: number | null): boolean | null {
    return rating === null ? null : rating >= this.likeFrom;
  }

  count(file: string): void {
    this.used[file] = (this.used[file] ?? 0) + 1;
    this.rows += 1;
    if (this.rows > MOST_ROWS) {
      throw new PageError(`the file has more than ${MOST_ROWS.toLocaleString("en")} rows`, "export a shorter period");
    }
  }

  leave(reason: string, count = 1): void {
    this.leftOut[reason] = (this.leftOut[reason] ?? 0) + count;
  }

  bad(where: string, what: string): void {
    this.leave("bad row");
    if (this.faults.length < FAULTS) this.faults.push(`${where}: ${what}`);
  }

  /** Whether a name is too long; then its row is left out. */
  tooLong(name: string): boolean {
    const long = Array.from(name).length > LONGEST_NAME;
    if (long) this.leave(`the name has more than ${LONGEST_NAME} characters`);
    return long;
  }

  add(entry: Entry): void {
    if (this.tooLong(entry.title) || (entry.item !== null && this.tooLong(entry.item))) return;
    const title = cleanText(entry.title);
    if (!title.trim()) this.leave("there is no name");
    else this.entries.push({ ...entry, title, item: entry.item === null ? null : cleanText(entry.item) });
  }
}

const DATE = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)(Z|[+-]\d{2}(?::?\d{2})?)?)?$/;

/** Unix seconds of a date, a date with time (UTC where no zone is given) or a number; null if empty. */
export function seconds(text: string): number | null {
  const given = text.trim();
  if (!given) return null;
  if (/^-*\d*\.?\d*$/.test(given) && /\d/.test(given)) return moment(Number(given));
  const [, day, clock = "00:00", zone = "Z"] = DATE.exec(given) ?? [];
  const offset = zone === "Z" ? "Z" : `${zone.slice(0, 3)}:${zone.slice(3).replace(":", "") || "00"}`;
  const time = Date.parse(`${day}T${clock.replace(",", ".")}${offset}`);
  const exists = day !== undefined && new Date(`${day}T00:00Z`).toISOString().startsWith(day);
  if (!exists || Number.isNaN(time)) throw new RangeError(`'${given.slice(0, 40)}' is not a date or time`);
  return moment(time / 1000);
}

function moment(time: number): number {
  if (!(Math.abs(time) < 1e13)) throw new RangeError("not a valid calendar date");
  return Math.trunc(time);
}

export function yearOf(text: string): number | null {
  const given = text.trim();
  if (!given) return null;
  const year = /^\+?\d{1,18}$/.test(given) ? Number(given) : 0;
  if (!(year > 0 && year < 10_000)) throw new RangeError(`'${given.slice(0, 20)}' is not a valid year`);
  return year;
}

export function ratingOf(text: string): number | null {
  const given = text.trim();
  if (!given) return null;
  const rating = /^[+-]?(\d+\.?\d*|\.\d+)$/.test(given) ? Number(given) : Number.NaN;
  if (!(rating >= 0 && rating <= 100)) throw new RangeError(`'${given.slice(0, 20)}' is not a rating from 0 to 100`);
  return rating;
}

/** The text of a file, without a byte order mark. */
export function decoded(bytes: Uint8Array, name: string): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch {
    // told below
  }
  throw new PageError(`${name} is not text in UTF-8`, "give the original exported file");
}
