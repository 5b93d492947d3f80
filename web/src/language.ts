/** The language of the page: chosen by its reader, or else the first of the browser's that there are strings in. */

import { STRINGS } from "./strings";

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français", es: "Español" } as const;
export type Language = keyof typeof LANGUAGES;
export type Key = keyof typeof STRINGS;
export type Values = Record<string, string | number>;

const ORDER = Object.keys(LANGUAGES) as Language[];
const CHOICE = "solera language";

let language: Language = "en";

export function currentLanguage(): Language {
  return language;
}

export function speak(chosen: Language): void {
  language = chosen;
  document.documentElement.lang = chosen;
}

/** Speak the language that was chosen before, or one of the browser's. */
export function speakFirst(): void {
  const wanted = [remembered(), ...navigator.languages.map((each) => each.slice(0, 2))];
  speak((wanted.find((each) => each !== null && each in LANGUAGES) as Language | undefined) ?? "en");
}

export function remember(chosen: Language): void {
  speak(chosen);
  try {
    localStorage.setItem(CHOICE, chosen);
  } catch {
    // where storage is switched off, the choice lasts as long as the page
  }
}

function remembered(): string | null {
  try {
    return localStorage.getItem(CHOICE);
  } catch {
    return null;
  }
}

/** A string in the reader's language. Of two forms, `one|many`, the value of `n` chooses. */
export function t(key: Key, values: Values = {}): string {
  return filled(template(key, values), values);
}

/** A string with its placeholders, for those who fill in more than text. */
export function template(key: Key, values: Values = {}): string {
  const text = STRINGS[key][ORDER.indexOf(language)] ?? "";
  const [one = "", many = one] = text.split("|");
  return new Intl.PluralRules(language).select(Number(values["n"] ?? 2)) === "one" ? one : many;
}

function filled(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === "number" ? number(value) : value;
  });
}

export function number(value: number, digits = 3): string {
  return value.toLocaleString(language, { maximumFractionDigits: digits });
}

export function percent(share: number): string {
  return share.toLocaleString(language, { style: "percent" });
}

export function bytes(count: number): string {
  const [unit, size] = count < 1e6 ? ["kilobyte", count / 1e3] : ["megabyte", count / 1e6];
  return size.toLocaleString(language, { style: "unit", unit: unit as string, maximumFractionDigits: 1 });
}

/** A day, and a time of day if one is wanted. Times are UTC, as in the exports. */
export function day(time: number, clock = false): string {
  const when = new Date(time * 1000);
  if (Number.isNaN(when.getTime())) return `${time}`;
  if (!clock) return when.toLocaleDateString(language, { dateStyle: "medium", timeZone: "UTC" });
  return `${when.toLocaleString(language, { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" })} UTC`;
}

/** What the device's service says, in English, in the reader's language; as it is, where there is no such string. */
export function translated(text: string): string {
  if (language === "en") return text;
  for (const key of Object.keys(STRINGS) as Key[]) {
    if (!key.startsWith("said")) continue;
    for (const form of STRINGS[key][0].split("|")) {
      const names: string[] = [];
      const pattern = form.replace(/[.*+?^$()[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, (_, name: string) => {
        names.push(name);
        return "(.+?)";
      });
      const found = new RegExp(`^${pattern}$`).exec(text);
      if (!found) continue;
      const values: Values = Object.fromEntries(names.map((name, at) => [name, translated(found[at + 1]!)]));
      const n = Number(String(values["n"] ?? "2").replace(/\D/g, ""));
      return filled(template(key, { n }), values);
    }
  }
  return text;
}
