/** Text from others, safe to show; and titles as they are compared. The same rules as the Python importer. */

/** Remove characters that are invisible or change the display order. Tabs and line breaks become spaces. */
export function cleanText(text: string): string {
  return text.replace(/[\t\n\r\u2028\u2029]/gu, " ").replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}]/gu, "");
}

const ARTICLES = "the|a|an|la|le|les|l'|il|lo|gli|el|los|las|der|die|das|den|det|un|une|uno|una|o|os|as";
const LAST_ARTICLE = new RegExp(`^(.*), (${ARTICLES})$`, "i");
const YEAR = /\s*\((\d{4})\)\s*$/;
const ALSO = /^(a\.?\s?k\.?\s?a\.?|aka|or)\s+/i;
const LETTERS: Record<string, string> = { ø: "o", ł: "l", đ: "d", æ: "ae", œ: "oe", ı: "i", "&": " and " };

/** A title without case, accents and punctuation, its article in front. */
export function plain(title: string): string {
  const moved = LAST_ARTICLE.exec(title.trim());
  const [, rest = "", article = ""] = moved ?? [];
  const ordered = moved ? article + (article.endsWith("'") ? "" : " ") + rest : title;
  const text = casefold(ordered)
    .normalize("NFKD")
    .replace(/[øłđæœı&]/g, (letter) => LETTERS[letter] ?? letter)
    .replace(/\p{M}/gu, (mark) => (isCombining(mark) ? "" : mark))
    .replace(/['’`´]/g, "");
  const words = text.replace(/[^\p{L}\p{N}]+/gu, " ").trim();
  return words || casefold(title.trim());
}

/** A title and the year that stands in parentheses after it. */
export function splitYear(title: string): [string, number | null] {
  const found = YEAR.exec(title);
  return found ? [title.slice(0, found.index), Number(found[1])] : [title, null];
}

/** A title as it is spoken, "The Rock" for "Rock, The (a.k.a. Alcatraz) (1996)", and its year. */
export function natural(item: { title: string; year: number | null }): [string, number | null] {
  const [name, year] = splitYear(item.title);
  const own = name.replace(/\s*\((a\.?\s?k\.?\s?a\.?|aka)\s[^()]*\)/gi, "");
  const [, rest = "", article = ""] = LAST_ARTICLE.exec(own) ?? [];
  const spoken = article ? article + (article.endsWith("'") ? "" : " ") + rest : own;
  return [spoken || item.title, item.year ?? year];
}

/** All plain titles that a catalogue's entry gives: the whole, without parentheses, and within them. */
export function titlesIn(title: string): string[] {
  const [name] = splitYear(title);
  const inner = Array.from(name.matchAll(/\(([^()]*)\)/g), (part) => (part[1] ?? "").replace(ALSO, ""));
  const outer = name.replace(/\s*\([^()]*\)/g, "");
  return [...new Set([name, outer, ...inner].filter((each) => each.trim()).map(plain))];
}

/** Python's str.casefold: through upper case, so that ß is ss; one Greek sigma; Cherokee in capitals. */
function casefold(text: string): string {
  const folded = text.toLowerCase().toUpperCase().toLowerCase().replaceAll("ς", "σ");
  return folded.replace(/[\uab70-\uabbf\u13f8-\u13fd]/g, (letter) => letter.toUpperCase());
}

const combining = new Map<string, boolean>();

/** Whether a mark has a combining class: then it changes places with others when text is normalized. */
function isCombining(mark: string): boolean {
  const known = combining.get(mark);
  if (known !== undefined) return known;
  const moves = ["\u0301" + mark, mark + "\u0334"].some((pair) => pair.normalize("NFD") !== pair);
  combining.set(mark, moves);
  return moves;
}
