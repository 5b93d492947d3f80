/** What holds for the source: nobody imports in a circle, and whatever the page says is in the file of strings. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseSync } from "vite";
import { LANGUAGES } from "../src/language";
import { STRINGS } from "../src/strings";

const SOURCE = join(import.meta.dirname, "../src");
const files = readdirSync(SOURCE).filter((name) => /\.tsx?$/.test(name) && !name.endsWith(".d.ts"));
const text = (name: string) => readFileSync(join(SOURCE, name), "utf8");

/** Files that import each other, directly or through others; types alone count, too. */
function circles(imports: Map<string, string[]>): string[] {
  const reaches = (from: string, to: string, met = new Set<string>()): boolean =>
    (imports.get(from) ?? []).some((next) => next === to || (!met.has(next) && reaches(next, to, met.add(next))));
  return [...imports.keys()].filter((name) => reaches(name, name));
}

const importsOf = (source: string) => Array.from(source.matchAll(/from "\.\/(\w+)"/g), ([, name]) => name!);

test("no module imports itself through others", () => {
  const imports = new Map(files.map((name) => [name.replace(/\.tsx?$/, ""), importsOf(text(name))]));
  expect([...imports.values()].flat().length).toBeGreaterThan(60);
  expect(circles(imports)).toEqual([]);
  const before = new Map([...imports, ["blend", ["model"]], ["model", ["blend"]]]); // as they once were
  expect(circles(before)).toEqual(expect.arrayContaining(["blend", "model"]));
});

interface Node {
  type: string;
  [field: string]: unknown;
}

const SPOKEN = ["aria-label", "aria-valuetext", "aria-description", "alt", "label", "placeholder", "title"];
const WORDS = /\p{L}{2}/u;
const SILENT = ["CallExpression", "ArrowFunctionExpression", "BinaryExpression", "MemberExpression"];
const NAMES = /^(Solera|solera-invitation:…|connect-src 'none'|solera device open|UTC|Ed25519)$/; // the same in all languages

/** Text in a view that is not taken from the strings: between tags, or in an attribute that is read out. */
function spoken(source: string, name = "view.tsx"): string[] {
  const found: string[] = [];
  const look = (node: Node, isSpoken: boolean): void => {
    const { type, value } = node;
    if (type === "JSXText") found.push(String(value).trim());
    else if (type === "JSXElement" || type === "JSXFragment") {
      visit(node["openingElement"], false);
      visit(node["children"], true);
    } else if (type === "JSXAttribute") visit(value, SPOKEN.includes(String((node["name"] as Node)["name"])));
    else if (type === "ConditionalExpression") {
      visit(node["test"], false);
      visit([node["consequent"], node["alternate"]], isSpoken);
    } else if (isSpoken && type === "Literal" && typeof value === "string") found.push(value);
    else if (isSpoken && type === "TemplateElement") found.push((value as { cooked: string }).cooked);
    else for (const child of Object.values(node)) visit(child, isSpoken && !SILENT.includes(type));
  };
  const visit = (value: unknown, isSpoken: boolean): void => {
    if (Array.isArray(value)) value.forEach((each) => visit(each, isSpoken));
    else if (value && typeof value === "object" && "type" in value) look(value as Node, isSpoken);
  };
  visit(parseSync(name, source).program, false);
  return found.filter((each) => WORDS.test(each) && !NAMES.test(each.trim()));
}

describe("strings", () => {
  test.each(Object.entries(STRINGS))("%s is there in every language, with the same placeholders", (_, said) => {
    expect(said.length).toBe(Object.keys(LANGUAGES).length);
    const places = (each: string) => [...new Set(each.match(/\{\w+\}/g))].sort().join();
    for (const each of said) {
      expect(each.trim()).not.toBe("");
      for (const form of each.split("|")) expect(places(form)).toBe(places(said[0]));
    }
  });

  test("few are the same in two languages, so none was forgotten", () => {
    const same = Object.entries(STRINGS).filter(([, [en, ...others]]) => others.every((each) => each === en));
    expect(same.map(([key]) => key)).toEqual([]);
  });

  test.each(files.filter((name) => name.endsWith(".tsx")))("none is hard-coded in %s", (name) => {
    expect(spoken(text(name), name)).toEqual([]);
  });

  test("a hard-coded one would be found", () => {
    expect(spoken('const a = <p class="lead">Hello</p>')).toEqual(["Hello"]);
    expect(spoken('const a = <p>{t("hello")} · {open ? "Hello" : "Bye"}</p>')).toEqual(["Hello", "Bye"]);
    expect(spoken('const a = <input aria-label="Search" type="search" />')).toEqual(["Search"]);
    expect(spoken("const a = <p>{`Hello ${name}`}</p>")).toEqual(["Hello "]);
  });
});
