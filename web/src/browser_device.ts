/** A device in the browser: the model that the page holds, and the history that this browser holds. */

import type { Bundle, Item, ModelEntry } from "./bundle";
import { Catalogue } from "./catalogue";
import { COLUMNS, csvLine, quoted } from "./csv";
import type {
  About,
  Because,
  Choices,
  Device,
  Filter,
  HistoryEntry,
  ImportOptions,
  Question,
  Recommendation,
  Report,
  Unmatched,
} from "./device";
import type { Entry } from "./entry";
import { PageError } from "./errors";
import { aliasKey, findAll, type Found, missedKey, readFile, unmatchedOf } from "./importing";
import { modelOf } from "./model";
import { best, type Model, type Person, scoresFor, together } from "./scoring";
import type { Interaction, Store } from "./store";
import { plain } from "./text";

const REASONS = 3;

export class BrowserDevice implements Device {
  readonly about: About;
  readonly genres: string[];
  readonly years: [number, number] | null;
  private readonly model: Model;
  private readonly catalogue: Catalogue;
  private last: { found: Found; source: string; options: ImportOptions } | null = null;

  constructor(
    bundle: Bundle,
    private readonly store: Store,
  ) {
    this.model = modelOf(bundle);
    this.catalogue = new Catalogue(bundle.items);
    this.genres = [...new Set(bundle.items.flatMap((item) => item.genres))].sort();
    const years = bundle.items.flatMap(({ year }) => (year === null ? [] : [year])).sort((a, b) => a - b);
    this.years = years.length ? [years[0]!, years[years.length - 1]!] : null;
    this.about = aboutOf(bundle);
  }

  get keeps(): boolean {
    return this.store.keeps;
  }

  keep(keeps: boolean): Promise<void> {
    return this.store.keep(keeps);
  }

  private item(id: string): Item {
    const row = this.catalogue.number.get(id);
    return row === undefined ? { id, title: id, year: null, genres: [] } : this.catalogue.items[row]!;
  }

  /** All entries, oldest first, unknown times before all others. */
  private ordered(): Interaction[] {
    const when = (each: Interaction) => each.time ?? Number.NEGATIVE_INFINITY;
    return [...this.store.entries.values()].sort((a, b) => when(a) - when(b) || a.number - b.number);
  }

  async history(search = ""): Promise<HistoryEntry[]> {
    const wanted = search.trim() ? plain(search) : "";
    return this.ordered()
      .map((each) => ({ ...each, title: this.item(each.item).title, counts: !this.store.marks.seenOnly.has(each.item) }))
      .filter(({ title, item }) => plain(title).includes(wanted) || plain(item) === wanted);
  }

  async importFile(file: File, options: ImportOptions): Promise<Report | Question> {
    const read = await readFile(file.name, new Uint8Array(await file.arrayBuffer()), options);
    if ("form" in read) return read;
    const { reading, source } = read;
    const found = findAll(reading.entries, this.catalogue, this.store.aliases);
    this.last = { found, source, options };
    const unmatched = unmatchedOf(found, this.catalogue);
    const added = await this.put(found.matched, source, options);
    const pairs = new Set(found.matched.map(([row, { time }]) => `${row} ${time}`));
    const repeated = found.matched.length - pairs.size;
    const below = found.matched.filter(([, entry]) => entry.liked === false);
    return {
      file: file.name,
      entries: reading.entries.length,
      matched: found.matched.length,
      items: new Set(found.matched.map(([row]) => row)).size,
      added,
      repeated,
      known: found.matched.length - added - repeated,
      seenOnly: new Set(below.map(([row]) => row)).size,
      unknown: reading.entries.length - found.matched.length,
      likeFrom: reading.likeFrom,
      unmatched,
      leftOut: reading.leftOut,
      faults: reading.faults,
      used: reading.used,
      unused: reading.unused,
    };
  }

  private put(entries: [number, Entry][], source: string, { asList, person }: ImportOptions): Promise<number> {
    return asList ? this.addListed(entries) : person ? this.addPerson(entries, person) : this.addAll(entries, source);
  }

  private async addListed(entries: [number, Entry][]): Promise<number> {
    const before = await this.listed();
    const listed = entries.map(([row]): [string, boolean] => [this.catalogue.items[row]!.id, true]);
    await this.store.change({ marks: { listed } });
    return (await this.listed()) - before;
  }

  private async addPerson(entries: [number, Entry][], name: string): Promise<number> {
    const { liked, seen } = this.store.people.get(name) ?? { liked: [], seen: [] };
    const [likes, all] = [new Set(liked), new Set(seen)];
    for (const [row, entry] of oldestFirst(entries)) {
      const { id } = this.catalogue.items[row]!;
      all.add(id);
      if (entry.liked === false) likes.delete(id);
      else likes.add(id);
    }
    await this.store.change({ people: [{ name, liked: [...likes], seen: [...all] }] });
    return all.size - seen.length;
  }

  /** Add entries oldest first, without duplicates. What the last entry of an item says of liking it holds. */
  private async addAll(entries: [number, Entry][], source: string): Promise<number> {
    await this.store.load(); // another tab may have added some
    const known = new Set(Array.from(this.store.entries.values(), ({ item, time }) => `${time} ${item}`));
    const seenOnly = new Map<string, boolean>();
    const put: Interaction[] = [];
    let number = this.store.nextNumber();
    for (const [row, entry] of oldestFirst(entries)) {
      const { id: item } = this.catalogue.items[row]!;
      if (!known.has(`${entry.time} ${item}`)) put.push({ number: number++, item, time: entry.time, source });
      known.add(`${entry.time} ${item}`);
      if (entry.liked !== null) seenOnly.set(item, !entry.liked);
    }
    await this.store.change({ put, marks: { seenOnly: [...seenOnly] } });
    return put.length;
  }

  async accept(choices: [Unmatched, Item][]): Promise<number> {
    if (!this.last) return 0;
    const { found, source, options } = this.last;
    const aliases = choices.map(([{ title, year }, item]) => ({ key: aliasKey(title, year), item: item.id }));
    const rows = choices.flatMap(([each, item]) =>
      (found.missed.get(missedKey(each)) ?? []).map((entry): [number, Entry] => [
        this.catalogue.number.get(item.id)!,
        entry,
      ]),
    );
    await this.store.change({ aliases });
    return this.put(rows, source, options);
  }

  async add(item: string, time: number | null, liked: boolean): Promise<boolean> {
    const row = this.catalogue.number.get(item)!;
    return (await this.addAll([[row, { title: "", year: null, time, item, liked }]], "by hand")) > 0;
  }

  async correct(number: number, { item, time, counts }: { item: string; time: number | null; counts: boolean }) {
    const old = this.store.entries.get(number);
    if (!old) return;
    for (const each of this.store.entries.values()) {
      if (each.number !== number && each.item === item && each.time === time) {
        throw new PageError("The history has that item at that time already.", "Remove one of the two.");
      }
    }
    await this.store.change({ put: [{ ...old, item, time }], marks: { seenOnly: [[item, !counts]] } });
    await this.dropOpinions(old.item);
  }

  async remove(number: number): Promise<void> {
    const old = this.store.entries.get(number);
    if (!old) return;
    await this.store.change({ remove: [number] });
    await this.dropOpinions(old.item);
  }

  /** Delete an opinion on an item that is no longer in the history. */
  private async dropOpinions(item: string): Promise<void> {
    const held = [...this.store.entries.values()].some((each) => each.item === item);
    if (!held) await this.store.change({ marks: { seenOnly: [[item, false]] } });
  }

  async forgetEverything(): Promise<void> {
    await this.store.clear();
    this.last = null;
  }

  async exportCsv(): Promise<string> {
    const lines = (await this.history()).map((each) =>
      csvLine([each.item, each.title, dateOf(each.time), each.source, each.counts ? "yes" : "no"].map(quoted)),
    );
    return csvLine(COLUMNS) + lines.join("");
  }

  async search(text: string): Promise<Item[]> {
    return this.catalogue.search(text);
  }

  /** The owner: distinct items, each where it was first met, oldest first. */
  private me(): { liked: string[]; seen: string[] } {
    const seen = [...new Set(this.ordered().map(({ item }) => item))];
    return { liked: seen.filter((item) => !this.store.marks.seenOnly.has(item)), seen };
  }

  private rows(items: Iterable<string>): number[] {
    return [...items].flatMap((item) => this.catalogue.number.get(item) ?? []);
  }

  async recommend({ genre, from, to, mine, along = [] }: Filter, count: number): Promise<Recommendation[]> {
    const everybody = [this.me(), ...along.flatMap((name) => this.store.people.get(name) ?? [])];
    const { hidden, disliked, listed } = this.store.marks;
    const people = everybody.map(({ liked }, place): Person => {
      return { history: this.rows(liked), disliked: place ? [] : this.rows(disliked) };
    });
    if (people.some(({ history }) => !history.length)) return [];
    const out = new Set([...everybody.flatMap(({ seen }) => seen), ...hidden, ...disliked]);
    const scores = together(people.map((each) => scoresFor(this.model, each)));
    const shown = (row: number) => {
      const { id, year, genres } = this.catalogue.items[row]!;
      if (out.has(id) || (genre && !genres.includes(genre))) return false;
      if (mine && listed.has(id) !== (mine === "only")) return false;
      if (year === null) return from === undefined && to === undefined;
      return year >= (from ?? year) && year <= (to ?? year);
    };
    return best(scores, shown, count).map((row) => {
      const item = this.catalogue.items[row]!;
      const [because, ...theirs] = people.map(({ history }) => this.because(history, row));
      const found = { item, score: scores[row]!, listed: listed.has(item.id), because: because ?? null };
      return { ...found, theirs: theirs.flatMap((each) => each ?? []) };
    });
  }

  private because(history: number[], row: number): Because | null {
    const parts = this.model.parts(history, row);
    if (!parts) return null;
    const { popular, ofHistory } = parts;
    const reasons = best(ofHistory, (place) => ofHistory[place]! > 0, REASONS).map((place) => ({
      item: this.catalogue.items[history[place]!]!,
      part: ofHistory[place]!,
    }));
    return { reasons, popular, raised: ofHistory.reduce((sum, part) => sum + Math.max(part, 0), Math.max(popular, 0)) };
  }

  async similar(item: string, count: number): Promise<Item[]> {
    const own = this.catalogue.number.get(item)!;
    const scores = this.model.similar(own);
    return best(scores, (row) => row !== own && scores[row]! > 0, count).map((row) => this.catalogue.items[row]!);
  }

  async choose(item: string, { hidden, disliked }: { hidden?: boolean; disliked?: boolean }): Promise<void> {
    const mark = (is?: boolean): [string, boolean][] => (is === undefined ? [] : [[item, is]]);
    await this.store.change({ marks: { hidden: mark(hidden), disliked: mark(disliked) } });
  }

  async choices(): Promise<Choices> {
    const items = (ids: Set<string>) => [...ids].map((id) => this.item(id));
    return { hidden: items(this.store.marks.hidden), disliked: items(this.store.marks.disliked) };
  }

  async listed(): Promise<number> {
    return this.store.marks.listed.size;
  }

  async clearList(): Promise<void> {
    await this.store.change({ marks: { listed: Array.from(this.store.marks.listed, (item) => [item, false]) } });
  }

  async people(): Promise<string[]> {
    return [...this.store.people].filter(([, { liked }]) => this.rows(liked).length).map(([name]) => name);
  }

  async forgetPerson(gone: string): Promise<void> {
    await this.store.change({ gone });
  }
}

function oldestFirst(entries: [number, Entry][]): [number, Entry][] {
  const when = ({ time }: Entry) => time ?? Number.NEGATIVE_INFINITY;
  return [...entries].sort(([, a], [, b]) => (when(a) === when(b) ? 0 : when(a) - when(b)));
}

/** ISO 8601, without the time of day if it is midnight; empty if unknown. */
export function dateOf(time: number | null): string {
  if (time === null) return "";
  const when = new Date(time * 1000);
  if (Number.isNaN(when.getTime())) return `${time}`;
  const text = when.toISOString();
  return time % 86_400 === 0 ? text.slice(0, 10) : `${text.slice(0, 19)}Z`;
}

function aboutOf({ manifest, digest, fingerprint, bytes }: Bundle): About {
  const { trained, second } = manifest;
  const test = trained["test"] as Record<string, Record<string, number>> | undefined;
  return {
    method: [manifest, ...(second ? [second] : [])].map(fullMethod).join(" & "),
    trainedOn: String(trained["dataset"] ?? ""),
    items: manifest.items,
    catalogueVersion: manifest.catalogue_version,
    library: manifest.library,
    bytes,
    digest,
    fingerprint,
    figures: test?.["full"] ?? {},
  };
}

function fullMethod({ method, plugins }: ModelEntry): string {
  return [method, ...plugins].join("+");
}
