/** Exported histories are text to a spreadsheet, and are read back as they were. */

import { expect, test } from "vitest";
import { BrowserDevice } from "../src/browser_device";
import { readBundle } from "../src/bundle";
import { parseCsv, quoted, unquoted } from "../src/csv";
import { readFile } from "../src/importing";
import { Store } from "../src/store";
import { bytes, json } from "./example";

const TITLES = ["=HYPERLINK(\"http://x\")", "'=1+1", "''@x", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "x;=1", "x;'=1", "'Til", "'"];

test("cells are quoted as Python does it, and each is read as it was", () => {
  const cells = json<{ cells: [string, string][] }>("vectors.json").cells;
  expect(cells.length).toBeGreaterThan(1000);
  expect(cells.filter(([cell, inFile]) => quoted(cell) !== inFile || unquoted(inFile) !== cell)).toEqual([]);
});

test("an exported history has no formula, and is imported with the same titles", async () => {
  const bundle = await readBundle(bytes("fedslist.bundle"));
  TITLES.forEach((title, row) => (bundle.items[row]!.title = title));
  const device = new BrowserDevice(bundle, await Store.open("csv"));
  for (const { id } of bundle.items.slice(0, TITLES.length)) await device.add(id, null, true);
  const text = await device.exportCsv();
  for (const separator of [",", ";"]) {
    const cells = [...parseCsv(text, separator)].flatMap(({ fields }) => fields);
    expect(cells.filter((each) => /^[=+\-@\t\r]/.test(each))).toEqual([]);
  }
  const titles = async (content: string) => {
    const read = await readFile("history.csv", new TextEncoder().encode(content), {});
    if (!("reading" in read)) throw new Error("a question");
    return read.reading.entries.map(({ title }) => title);
  };
  expect(await titles(text)).toEqual(TITLES);
  expect(await titles("title\n'=1\n")).toEqual(["'=1"]); // a file of somebody else
});

test("a damaged zip and a text are refused, and a table with unknown columns is asked about", async () => {
  const read = (name: string, content: string) => readFile(name, new TextEncoder().encode(content), {});
  await expect(read("films.zip", "PK\x03\x04")).rejects.toThrow("films.zip is not a zip, or is damaged");
  await expect(read("films.zip", "oops")).rejects.toThrow("films.zip is not a zip, or is damaged");
  await expect(read("notes.txt", "I liked Fargo.\nAnd Heat.\n")).rejects.toThrow("notes.txt is not a table of titles");
  const asked = await read("mine.csv", "what,when\nFargo,1997\n");
  expect("form" in asked && asked.form.header).toEqual(["what", "when"]);
});
