/**
 * What the app needs to know about a device. The screens use nothing else, so the same app can show a device whose
 * data are in the browser (`browser_device.ts`) or elsewhere.
 */

import type { Item } from "./bundle";
import type { Part } from "./part";
import type { Columns, TableForm } from "./table";

export type { Item };

/** One entry of a history; `counts` says whether recommendations are made from its item. */
export interface HistoryEntry {
  number: number;
  item: string;
  title: string;
  time: number | null;
  source: string;
  counts: boolean;
}

/** A title that is not in the catalogue, how often it came, and the items that may have been meant. */
export interface Unmatched {
  title: string;
  year: number | null;
  times: number;
  near: Item[];
}

/** Result of an import: what became of every row. */
export interface Report {
  file: string;
  entries: number;
  matched: number;
  items: number;
  added: number;
  repeated: number;
  known: number;
  seenOnly: number;
  unknown: number;
  likeFrom: number;
  unmatched: Unmatched[];
  leftOut: Record<string, number>;
  faults: string[];
  used: Record<string, number>;
  unused: string[];
}

/** Questions about a table before it can be imported: its columns, and whose rows are meant. */
export interface Question {
  form: TableForm;
  users: string[];
}

export interface ImportOptions {
  /** Lowest rating that counts as a like; without it 3.5 of 5 stars. */
  likeFrom?: number;
  columns?: Columns;
  user?: string;
  /** The file lists films to choose from, such as a watchlist, and is no history. */
  asList?: boolean;
  /** Told now and then how many entries have been read. */
  onProgress?: (entries: number) => void;
}

export interface Filter {
  genre?: string;
  from?: number;
  to?: number;
  /** Only films of the list or library. */
  listed?: boolean;
}

export interface Reason {
  item: Item;
  part: number;
}

export interface Recommendation {
  item: Item;
  score: number;
  /** Those items of the history that raised the score most; null if the score is no sum over the history. */
  reasons: Reason[] | null;
  popular: number;
}

export interface About {
  method: string;
  trainedOn: string;
  items: number;
  catalogueVersion: number;
  library: string;
  bytes: number;
  digest: string;
  fingerprint: string;
  figures: Record<string, number>;
}

/** The model before the last update. */
export interface Former {
  version: number;
  digest: string;
}

export type Standing = "asked" | "joined" | "paused" | "left";

/** A message that left the device, in plain words and as it was recorded. */
export interface Sent {
  time: number;
  round: number;
  kind: string;
  bytes: number;
  told: string;
  /** People that the sum is over at the least, where the message is hidden in a sum. */
  people: number | null;
  protection: string;
  [recorded: string]: unknown;
}

export interface Federation {
  id: string;
  standing: Standing;
  offer: { masked?: boolean; noise?: number; rounds?: number };
  uploads: number;
  /** Null: something left without noise, for which there is no ε. */
  epsilon: number | null;
  delta: number;
}

export interface Limit {
  name: string;
  value: number | boolean | null;
  about: string;
  default: number | boolean | null;
}

export interface Left {
  sent: Sent[];
  federations: Federation[];
  policy: Limit[];
}

/** What a device's folder has beyond a page without a device: lists, federations, updates. */
export interface Folder {
  readonly former: Former | null;
  readonly part: Part;
  listed(): Promise<number>;
  clearList(): Promise<void>;
  left(): Promise<Left>;
  decide(federation: string, standing: Standing): Promise<Left>;
  setPolicy(change: Record<string, number | boolean | null>): Promise<Left>;
  update(file: File): Promise<void>;
  goBack(): Promise<void>;
}

export interface Device {
  readonly about: About;
  readonly genres: string[];
  readonly years: [number, number] | null;
  /** Whether the history is still there when the page is opened again. */
  readonly keeps: boolean;
  /** Keep the history in the browser, or erase it there and forget it with this tab. A folder leaves no choice. */
  keep?(keeps: boolean): Promise<void>;
  /** Where the history is, as the end of a sentence. */
  readonly place: string;
  readonly folder?: Folder;

  history(search?: string): Promise<HistoryEntry[]>;
  /** Import a file, or ask what its columns are. */
  importFile(file: File, options: ImportOptions): Promise<Report | Question>;
  /** Take titles of the last import as those of items, now and in later imports. */
  accept(choices: [Unmatched, Item][]): Promise<number>;
  add(item: string, time: number | null, liked: boolean): Promise<boolean>;
  correct(number: number, change: { item: string; time: number | null; counts: boolean }): Promise<void>;
  remove(number: number): Promise<void>;
  forgetEverything(): Promise<void>;
  exportCsv(): Promise<string>;

  search(text: string): Promise<Item[]>;
  recommend(filter: Filter, count: number): Promise<Recommendation[]>;
  similar(item: string, count: number): Promise<Item[]>;
  hide(item: string, hidden: boolean): Promise<void>;
  hidden(): Promise<Item[]>;
}
