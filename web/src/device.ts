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
  /** The file lists titles to choose from, such as a library, and is no history. */
  asList?: boolean;
  /** The history is that of somebody else in the household. */
  person?: string;
  /** Told now and then how many entries have been read. */
  onProgress?: (entries: number) => void;
}

export interface Filter {
  genre?: string;
  from?: number;
  to?: number;
  /** Only what is in the list or library, or only what is not. */
  mine?: "only" | "not";
  /** Other people of the household who are to like it, too. */
  along?: string[];
}

export interface Reason {
  item: Item;
  part: number;
}

/** Why something is recommended to one person: the items that raised its score most, and the sum of all that did. */
export interface Because {
  reasons: Reason[];
  raised: number;
  popular: number;
}

export interface Recommendation {
  item: Item;
  score: number;
  /** Whether it is in the list or library. */
  listed: boolean;
  /** Null if the score is no sum over the history. */
  because: Because | null;
  /** The same for the other people, in their order. */
  theirs: Because[];
}

/** What somebody does not want to see, or not like. */
export interface Choices {
  hidden: Item[];
  disliked: Item[];
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

/** What a device's folder has beyond a page without a device: federations, updates. */
export interface Folder {
  readonly former: Former | null;
  readonly part: Part;
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
  /** The path of the folder where the history is, unless it is in the browser. */
  readonly path?: string;
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
  choose(item: string, choice: { hidden?: boolean; disliked?: boolean }): Promise<void>;
  choices(): Promise<Choices>;
  /** How many titles the list or library has. */
  listed(): Promise<number>;
  clearList(): Promise<void>;
  /** Other people of the household who have a history here. */
  people(): Promise<string[]>;
  forgetPerson(name: string): Promise<void>;
}
