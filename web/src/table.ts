/** Any CSV or TSV file, with columns that are named or guessed; and ratings as MovieLens writes them. */

import { COLUMNS, type CsvRow, parseCsv, separatorOf, unquoted } from "./csv";
import { type Reading, ratingOf, seconds, yearOf } from "./entry";
import { PageError } from "./errors";

export const KINDS = ["item", "title", "year", "time", "rating", "counts", "user"] as const;
export type Kind = (typeof KINDS)[number];
/** The column of every kind of field, by its name in the header. */
export type Columns = Partial<Record<Kind, string>>;

export interface TableForm {
  header: string[];
  columns: Columns;
  separator: string;
  hasHeader: boolean;
}

const NAMES: Record<Kind, RegExp> = {
  item: /^(item|item.?id|movie.?id|film.?id|id)$/i,
  title: /^(title|name|film|movie)$/i,
  year: /^(year|made|release.?year)$/i,
  time: /^(time|date|timestamp|watched.?(date|at|on)?|seen|unix.?time)$/i,
  rating: /^(rating|stars|score|my.?rating)$/i,
  counts: /^counts$/i,
  user: /^(user|user.?id|person)$/i,
};
const MOVIELENS: Columns = { user: "user", item: "item", rating: "rating", time: "time" };
const COUNTS: Record<string, boolean | null> = { yes: true, no: false, "": null };
const STARS = 5;

/** The header of a table and what its columns seem to be. Four numbers in the first line are MovieLens ratings. */
export function formOf(text: string): TableForm {
  const separator = separatorOf(text);
  const header = parseCsv(text, separator).next().value?.fields ?? [];
  if (header.length === 4 && header.every((each) => /^\d+(\.\d+)?$/.test(each))) {
    return { header: ["user", "item", "rating", "time"], columns: MOVIELENS, separator, hasHeader: false };
  }
  const columns: Columns = {};
  for (const kind of KINDS) {
    const found = header.find((each) => NAMES[kind].test(each.trim()));
    if (found !== undefined) columns[kind] = found;
  }
  return { header, columns, separator, hasHeader: true };
}

/** The ids in the column of users, in the order of the file. */
export function usersOf(text: string, form: TableForm): string[] {
  const at = form.header.indexOf(form.columns.user ?? "");
  const found = new Set<string>();
  if (at >= 0) for (const fields of bodyOf(text, form)) found.add(fields.fields[at] ?? "");
  return [...found];
}

/** The rows below the header. From an exported history, the quotes are removed that were added to it. */
export function* bodyOf(text: string, form: TableForm): Generator<CsvRow, undefined> {
  const rows = parseCsv(text, form.separator);
  if (form.hasHeader) rows.next();
  const exported = form.header.join() === COLUMNS.join();
  for (const { line, fields } of rows) yield { line, fields: exported ? fields.map(unquoted) : fields };
  return undefined;
}

/** One entry per row, of one user if the file holds several. `ofFive`: ratings are expected to be 0 to 5. */
export function readTable(
  reading: Reading,
  text: string,
  file: string,
  form: TableForm,
  { user, ofFive }: { user?: string | undefined; ofFive: boolean },
): void {
  const { columns, header } = form;
  if (!columns.item && !columns.title) {
    throw new PageError(`the columns of ${file} are not known`, "choose the column of the title or of the item's id");
  }
  reading.used[file] = 0;
  for (const { line, fields } of bodyOf(text, form)) {
    const field = (kind: Kind) => (fields[header.indexOf(columns[kind] ?? "")] ?? "").trim();
    if (user !== undefined && columns.user && field("user") !== user) continue;
    reading.count(file);
    const item = field("item") || null;
    const title = field("title") || item;
    if (title === null) {
      reading.bad(`line ${line}`, "neither an item nor a title");
      continue;
    }
    const counts = COUNTS[field("counts").toLowerCase()];
    if (counts === undefined) {
      reading.bad(`line ${line}`, `'${field("counts").slice(0, 20)}' is neither yes nor no`);
      continue;
    }
    try {
      const [year, time, rating] = [yearOf(field("year")), seconds(field("time")), ratingOf(field("rating"))];
      if (ofFive && rating !== null && rating > STARS) {
        throw new PageError(
          `${file}, line ${line}: the rating ${rating} is not one of ${STARS} stars`,
          "say from which rating on you like a film, on the file's own scale, for example 7",
        );
      }
      reading.add({ title, year, time, item, liked: counts ?? reading.liked(rating) });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      reading.bad(`line ${line}`, error.message);
    }
  }
}
