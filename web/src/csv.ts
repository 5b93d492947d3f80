/** CSV as spreadsheets write it: fields in quotes may hold separators, line breaks and doubled quotes. */

export interface CsvRow {
  line: number;
  fields: string[];
}

/** The rows of a text; empty lines have none. `line` is where a row ends. */
export function* parseCsv(text: string, separator = ","): Generator<CsvRow, undefined> {
  let [fields, field, quoted, line, at]: [string[], string, boolean, number, number] = [[], "", false, 1, 0];
  let fresh = true; // at the beginning of a field, where a quote opens
  const take = () => {
    fields.push(field);
    [field, fresh] = ["", true];
  };
  while (at < text.length) {
    const letter = text[at];
    if (quoted) {
      if (letter === '"' && text[at + 1] === '"') {
        field += '"';
        at += 1;
      } else if (letter === '"') quoted = false;
      else {
        field += letter;
        if (letter === "\n") line += 1;
      }
      at += 1;
    } else if (letter === '"' && fresh) {
      [quoted, fresh] = [true, false];
      at += 1;
    } else if (text.startsWith(separator, at)) {
      take();
      at += separator.length;
    } else if (letter === "\n" || letter === "\r") {
      if (fields.length || field || !fresh) {
        take();
        yield { line, fields };
      }
      fields = [];
      line += 1;
      at += letter === "\r" && text[at + 1] === "\n" ? 2 : 1;
    } else {
      field += letter;
      fresh = false;
      at += 1;
    }
  }
  if (fields.length || field || !fresh) {
    take();
    yield { line, fields };
  }
  return undefined;
}

/** The separator of a file, by its first line. */
export function separatorOf(text: string): string {
  const first = text.slice(0, 10_000).split(/[\r\n]/, 1)[0] ?? "";
  return ["::", "\t", ";"].find((each) => first.split(each).length > first.split(",").length) ?? ",";
}

/** The columns of a history as CSV. */
export const COLUMNS = ["item", "title", "time", "source", "counts"];

// How a cell begins that a spreadsheet takes for a formula. In some countries a semicolon ends a cell.
const FORMULA = "'*[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]";
const BEFORE = new RegExp(`(^|;)(?=${FORMULA})`, "g");
const QUOTE = new RegExp(`(^|;)'(?=${FORMULA})`, "g");

/** The cell with one more ' before a formula, also if it has some already. */
export function quoted(cell: string): string {
  return cell.replace(BEFORE, "$1'");
}

/** The cell without what `quoted` has added. */
export function unquoted(cell: string): string {
  return cell.replace(QUOTE, "$1");
}

/** One line of a CSV file. */
export function csvLine(fields: (string | number)[]): string {
  const quoted = fields.map((each) => (/[",\r\n]/.test(`${each}`) ? `"${`${each}`.replaceAll('"', '""')}"` : each));
  return `${quoted.join(",")}\n`;
}
