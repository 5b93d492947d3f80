/**
 * Letterboxd: Settings → Data → Export your data. The zip as it comes, or one of its CSV files.
 *
 * The diary's `Watched Date` counts where given. A film with a heart was liked; otherwise its rating decides, if
 * there is one. A watchlist holds films not seen yet, and `deleted/` and `orphaned/` what the owner has taken back.
 */

import { parseCsv } from "./csv";
import { decoded, type Reading, ratingOf, seconds, yearOf } from "./entry";
import { PageError } from "./errors";
import { readZip } from "./zip";

const WATCHED = "watched.csv";
const RATINGS = "ratings.csv";
const LIKES = "likes/films.csv";
const FILES = [WATCHED, RATINGS, "diary.csv", LIKES];
const NOT_THESE = ["deleted", "orphaned", "lists", "likes", "__MACOSX"]; // folders of an export
const MOST_BYTES = 1 << 28;
const MOST_FILMS = 50_000;
const WHAT = "give the zip as Letterboxd made it, or its watched.csv, diary.csv or ratings.csv";

interface Row {
  name: string;
  year: number | null;
  rating: number | null;
  seen: boolean;
  time: number | null;
}

interface Film {
  name: string;
  year: number | null;
  hearted: boolean;
  rating: number | null;
  logged: number | null;
  viewings: Set<number>;
}

export function isLetterboxd(header: string[]): boolean {
  return ["Date", "Name", "Year"].every((name) => header.includes(name));
}

/** One of the CSV files: one entry per row. */
export function readLetterboxdCsv(reading: Reading, text: string, file: string): void {
  if (file.startsWith("watchlist")) throw new PageError(`${file} is a watchlist of films not watched yet`, WHAT);
  for (const { name, year, rating, time } of rowsOf(reading, text, file)) {
    reading.add({ title: name, year, time, item: null, liked: reading.liked(rating) });
  }
}

/** The zip: one entry per film and date. */
export async function readLetterboxdZip(reading: Reading, bytes: Uint8Array<ArrayBuffer>, zip: string): Promise<void> {
  const films = new Map<string, Film>();
  let rows = 0;
  for (const entry of readZip(bytes, zip)) {
    const file = inside(entry.name);
    if (!FILES.includes(file) || file in reading.used) {
      if (!entry.name.endsWith("/")) reading.unused.push(entry.name);
      continue;
    }
    const text = decoded(await entry.read(MOST_BYTES), file);
    for (const row of rowsOf(reading, text, file, `${file}, `)) {
      if (reading.tooLong(row.name)) continue;
      merge(films, row, file, zip);
      rows += 1;
    }
  }
  if (!Object.keys(reading.used).length) throw new PageError(`${zip} has none of the files ${FILES.join(", ")}`, WHAT);
  let entries = 0;
  for (const { name, year, hearted, rating, logged, viewings } of films.values()) {
    const liked = hearted || reading.liked(rating);
    const times = viewings.size ? [...viewings].sort((a, b) => a - b) : [logged];
    for (const time of times) reading.add({ title: name, year, time, item: null, liked });
    entries += times.length;
  }
  if (rows > entries) reading.leave("the same film in another file of the export", rows - entries);
}

function merge(films: Map<string, Film>, row: Row, file: string, zip: string): void {
  const key = `${row.year} ${row.name}`;
  const film = films.get(key) ?? {
    ...{ name: row.name, year: row.year, hearted: false },
    ...{ rating: null, logged: null, viewings: new Set<number>() },
  };
  films.set(key, film);
  if (films.size > MOST_FILMS) {
    throw new PageError(`${zip} has more than ${MOST_FILMS.toLocaleString("en")} films`, "import its files one by one");
  }
  film.hearted ||= file === LIKES;
  if (row.rating !== null && (film.rating === null || file === RATINGS)) film.rating = row.rating;
  if (row.seen && row.time !== null) film.viewings.add(row.time);
  else if (film.logged === null || file === WATCHED) film.logged = row.time;
}

function* rowsOf(reading: Reading, text: string, file: string, within = ""): Generator<Row> {
  const rows = parseCsv(text);
  const header = rows.next().value?.fields ?? [];
  if (!isLetterboxd(header)) {
    throw new PageError(`the first line of ${file} is not the header Date,Name,Year,… of a Letterboxd export`, WHAT);
  }
  reading.used[file] = 0;
  for (const { line, fields } of rows) {
    reading.count(file);
    const field = (name: string) => fields[header.indexOf(name)] ?? "";
    const [name, seen] = [field("Name"), field("Watched Date")];
    if (!name.trim()) {
      reading.bad(`${within}line ${line}`, "the film has no name");
      continue;
    }
    try {
      const [year, time] = [yearOf(field("Year")), seconds(seen || field("Date"))];
      yield { name, year, rating: ratingOf(field("Rating")), seen: seen !== "", time };
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      reading.bad(`${within}line ${line}`, error.message);
    }
  }
}

/** The name of a file within the export, which may be in a folder of its own. */
function inside(entry: string): string {
  const parts = entry.split("/");
  const nested = parts.length > 1 && !FILES.includes(entry) && !NOT_THESE.includes(parts[0] ?? "");
  return (nested ? parts.slice(1) : parts).join("/");
}
