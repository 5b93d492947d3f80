/**
 * A person's data in the browser's own database (IndexedDB), held in memory while the page is open. Whoever wants to
 * keep nothing has them in memory alone; the browser remembers just this choice.
 */

export interface Interaction {
  number: number;
  item: string;
  time: number | null;
  source: string;
}

export interface Alias {
  key: string;
  item: string;
}

/** Somebody else of the household: what counts of a history, oldest first, and all that was met. */
export interface Household {
  name: string;
  liked: string[];
  seen: string[];
}

const MARKS = ["seenOnly", "hidden", "disliked", "listed"] as const;
type Mark = (typeof MARKS)[number];

interface Change {
  put?: Interaction[];
  remove?: number[];
  marks?: Partial<Record<Mark, [string, boolean][]>>;
  aliases?: Alias[];
  people?: Household[];
  gone?: string;
}

const VERSION = 2; // of the stores: 2 has what is disliked and listed, and people
const ENTRIES = "entries";
const ALIASES = "aliases";
const PEOPLE = "people";
const STORES = [ENTRIES, ALIASES, PEOPLE, ...MARKS];

export class Store {
  entries = new Map<number, Interaction>();
  marks = marked();
  aliases = new Map<string, string>();
  people = new Map<string, Household>();

  private database: IDBDatabase | null = null;

  private constructor(private readonly name: string) {}

  /** Open a database by name. Where the browser has none, data last as long as the page. */
  static async open(name: string): Promise<Store> {
    const store = new Store(name);
    if (!keepsNothing(name)) await store.connect();
    await store.load();
    return store;
  }

  private async connect(): Promise<void> {
    this.database = await opened(this.name);
    if (this.database) this.database.onversionchange = () => this.disconnect(); // another tab is to keep nothing
  }

  private disconnect(): void {
    this.database?.close();
    this.database = null;
  }

  get keeps(): boolean {
    return this.database !== null;
  }

  /** Read everything, which another tab may have changed. */
  async load(): Promise<void> {
    if (!this.database) return;
    const reading = this.database.transaction(STORES);
    const all = <T>(name: string) => done<T[]>(reading.objectStore(name).getAll());
    const entries = await all<Interaction>(ENTRIES);
    const aliases = await all<Alias>(ALIASES);
    const people = await all<Household>(PEOPLE);
    for (const mark of MARKS) this.marks[mark] = new Set(await all<string>(mark));
    this.entries = new Map(entries.map((each) => [each.number, each]));
    this.aliases = new Map(aliases.map((each) => [each.key, each.item]));
    this.people = new Map(people.map((each) => [each.name, each]));
  }

  /** Keep all data from now on; or nothing: erase what is kept, and go on in memory. */
  async keep(keeps: boolean): Promise<void> {
    keepNothing(this.name, !keeps);
    if (!keeps) {
      await this.erase();
      this.disconnect();
      await deleted(this.name);
    } else if (!this.database) {
      await this.connect();
      const marks = MARKS.map((mark) => [mark, Array.from(this.marks[mark], (item) => [item, true])]);
      await this.change({
        put: [...this.entries.values()],
        marks: Object.fromEntries(marks) as Required<Change>["marks"],
        aliases: Array.from(this.aliases, ([key, item]) => ({ key, item })),
        people: [...this.people.values()],
      });
    }
  }

  nextNumber(): number {
    return Math.max(0, ...[...this.entries.keys()].slice(-1)) + 1;
  }

  /** Make a change in one transaction. */
  async change({ put = [], remove = [], marks = {}, aliases = [], people = [], gone }: Change): Promise<void> {
    const changed = MARKS.flatMap((mark) => (marks[mark] ?? []).map(([item, is]) => ({ mark, item, is })));
    if (this.database) {
      const writing = this.database.transaction(STORES, "readwrite");
      const store = (name: string) => writing.objectStore(name);
      for (const each of put) store(ENTRIES).put(each, each.number);
      for (const each of remove) store(ENTRIES).delete(each);
      for (const { mark, item, is } of changed) is ? store(mark).put(item, item) : store(mark).delete(item);
      for (const each of aliases) store(ALIASES).put(each, each.key);
      for (const each of people) store(PEOPLE).put(each, each.name);
      if (gone !== undefined) store(PEOPLE).delete(gone);
      await finished(writing);
    }
    for (const each of put) this.entries.set(each.number, each);
    for (const each of remove) this.entries.delete(each);
    for (const { mark, item, is } of changed) is ? this.marks[mark].add(item) : this.marks[mark].delete(item);
    for (const each of aliases) this.aliases.set(each.key, each.item);
    for (const each of people) this.people.set(each.name, each);
    if (gone !== undefined) this.people.delete(gone);
  }

  private async erase(): Promise<void> {
    if (!this.database) return;
    const writing = this.database.transaction(STORES, "readwrite");
    for (const name of STORES) writing.objectStore(name).clear();
    await finished(writing);
  }

  async clear(): Promise<void> {
    await this.erase();
    for (const each of [this.entries, this.aliases, this.people]) each.clear();
    this.marks = marked();
  }
}

function marked(): Record<Mark, Set<string>> {
  return { seenOnly: new Set(), hidden: new Set(), disliked: new Set(), listed: new Set() };
}

const CHOICE = "keeps nothing";

function keepsNothing(name: string): boolean {
  try {
    return localStorage.getItem(`${name} ${CHOICE}`) !== null;
  } catch {
    return false; // where storage is switched off, nothing is kept anyway
  }
}

function keepNothing(name: string, nothing: boolean): void {
  try {
    if (nothing) localStorage.setItem(`${name} ${CHOICE}`, "yes");
    else localStorage.removeItem(`${name} ${CHOICE}`);
  } catch {
    // as above
  }
}

function deleted(name: string): Promise<void> {
  return new Promise((resolve) => {
    try {
      const request = indexedDB.deleteDatabase(name);
      request.onsuccess = request.onerror = request.onblocked = () => resolve();
    } catch {
      resolve();
    }
  });
}

function opened(name: string): Promise<IDBDatabase | null> {
  return new Promise((resolve) => {
    try {
      const request = indexedDB.open(name, VERSION);
      request.onupgradeneeded = () => {
        const held = request.result.objectStoreNames;
        for (const each of STORES) if (!held.contains(each)) request.result.createObjectStore(each);
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => resolve(null);
    } catch {
      resolve(null); // some browsers throw where storage is switched off
    }
  });
}

function done<T>(request: IDBRequest): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result as T);
    request.onerror = () => reject(request.error);
  });
}

function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}
