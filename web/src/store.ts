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

interface Change {
  put?: Interaction[];
  remove?: number[];
  seenOnly?: [string, boolean][];
  hidden?: [string, boolean][];
  aliases?: Alias[];
}

const ENTRIES = "entries";
const SEEN_ONLY = "seenOnly";
const HIDDEN = "hidden";
const ALIASES = "aliases";
const STORES = [ENTRIES, SEEN_ONLY, HIDDEN, ALIASES];

export class Store {
  entries = new Map<number, Interaction>();
  seenOnly = new Set<string>();
  hidden = new Set<string>();
  aliases = new Map<string, string>();

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
    const [entries, seenOnly, hidden, aliases] = await Promise.all([
      all<Interaction>(ENTRIES),
      all<string>(SEEN_ONLY),
      all<string>(HIDDEN),
      all<Alias>(ALIASES),
    ]);
    this.entries = new Map(entries.map((each) => [each.number, each]));
    this.seenOnly = new Set(seenOnly);
    this.hidden = new Set(hidden);
    this.aliases = new Map(aliases.map((each) => [each.key, each.item]));
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
      const marked = (items: Set<string>) => Array.from(items, (item): [string, boolean] => [item, true]);
      await this.change({
        put: [...this.entries.values()],
        seenOnly: marked(this.seenOnly),
        hidden: marked(this.hidden),
        aliases: Array.from(this.aliases, ([key, item]) => ({ key, item })),
      });
    }
  }

  nextNumber(): number {
    return Math.max(0, ...[...this.entries.keys()].slice(-1)) + 1;
  }

  /** Make a change in one transaction. */
  async change({ put = [], remove = [], seenOnly = [], hidden = [], aliases = [] }: Change): Promise<void> {
    if (this.database) {
      const writing = this.database.transaction(STORES, "readwrite");
      const mark = (name: string, [item, is]: [string, boolean]) =>
        is ? writing.objectStore(name).put(item, item) : writing.objectStore(name).delete(item);
      for (const each of put) writing.objectStore(ENTRIES).put(each, each.number);
      for (const each of remove) writing.objectStore(ENTRIES).delete(each);
      for (const each of seenOnly) mark(SEEN_ONLY, each);
      for (const each of hidden) mark(HIDDEN, each);
      for (const each of aliases) writing.objectStore(ALIASES).put(each, each.key);
      await finished(writing);
    }
    for (const each of put) this.entries.set(each.number, each);
    for (const each of remove) this.entries.delete(each);
    for (const [item, is] of seenOnly) is ? this.seenOnly.add(item) : this.seenOnly.delete(item);
    for (const [item, is] of hidden) is ? this.hidden.add(item) : this.hidden.delete(item);
    for (const each of aliases) this.aliases.set(each.key, each.item);
  }

  private async erase(): Promise<void> {
    if (!this.database) return;
    const writing = this.database.transaction(STORES, "readwrite");
    for (const name of STORES) writing.objectStore(name).clear();
    await finished(writing);
  }

  async clear(): Promise<void> {
    await this.erase();
    for (const each of [this.entries, this.seenOnly, this.hidden, this.aliases]) each.clear();
  }
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
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => STORES.forEach((each) => request.result.createObjectStore(each));
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
