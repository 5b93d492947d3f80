/** A device in a folder of this machine, shown by the local service that `solera device open` starts. */

import type { Item } from "./bundle";
import { csvLine } from "./csv";
import type {
  About,
  Choices,
  Device,
  Filter,
  Folder,
  Former,
  HistoryEntry,
  ImportOptions,
  Left,
  Question,
  Recommendation,
  Report,
  Standing,
  Unmatched,
} from "./device";
import { PageError } from "./errors";
import { type Part, partOf } from "./part";
import { bodyOf, formOf, KINDS, type TableForm, usersOf } from "./table";
import { isZip, notAZip } from "./zip";

const LOOK = 250; // milliseconds between two looks at an import
const FIRST = 1 << 16; // bytes of a file that tell what it is
const TOKEN = "solera token";

interface State {
  folder: string;
  genres: string[];
  years: [number, number] | null;
  listed: number;
  people: string[];
  former: Former | null;
  model: Record<string, never> & { figures: Record<string, number> };
}

interface Job {
  number: number;
  state: "reading" | "done" | "failed";
  entries: number;
  error: { error: string; next: string } | null;
  report: (Omit<Report, "seenOnly" | "likeFrom" | "leftOut"> & Record<string, never>) | null;
}

type Ask = <T>(verb: string, path: string, body?: unknown, raw?: boolean) => Promise<T>;

/** The token of the link. It leaves the address bar, and stays in this tab until it is closed. */
export function takeToken(): string {
  const [, given] = /^#token=([\w-]+)$/.exec(location.hash) ?? [];
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  const token = sessionStorage.getItem(TOKEN);
  if (!token) throw new PageError("This page was opened without its link.", "Open the link that solera device open shows.");
  return token;
}

function asker(token: string): Ask {
  return async <T>(verb: string, path: string, body?: unknown, raw = false): Promise<T> => {
    const sent = body === undefined ? null : body instanceof Blob ? body : JSON.stringify(body);
    const options = { method: verb, body: sent, headers: { Authorization: `Bearer ${token}` } };
    const answer = await fetch(`page/${path}`, options).catch(() => {
      throw new PageError("The device does not answer.", "Start solera device open again, and open its new link.");
    });
    if (answer.ok) return (raw ? answer.text() : answer.json()) as Promise<T>;
    const said = (await answer.json().catch(() => ({}))) as { error?: string; next?: string };
    throw new PageError(said.error ?? `The device answers ${answer.status}.`, said.next ?? "Reload the page.");
  };
}

function query(values: Record<string, string | number | boolean | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, `${value}`])).toString();
}

export class ServiceDevice implements Device, Folder {
  readonly keeps = true;
  readonly folder: Folder = this;
  readonly about: About;
  readonly genres: string[];
  readonly years: [number, number] | null;
  readonly path: string;
  readonly former: Former | null;
  readonly part: Part;
  private last: Job | null = null;

  private constructor(
    private readonly ask: Ask,
    state: State,
  ) {
    const { model } = state;
    this.about = { ...model, trainedOn: model["trained_on"]!, catalogueVersion: model["catalogue_version"]! } as unknown as About;
    this.genres = state.genres;
    this.years = state.years;
    this.former = state.former;
    this.part = partOf(ask);
    this.path = state.folder;
  }

  static async open(token: string): Promise<ServiceDevice> {
    const ask = asker(token);
    return new ServiceDevice(ask, await ask<State>("GET", "about"));
  }

  history(search = ""): Promise<HistoryEntry[]> {
    return this.ask("GET", `history?${query({ search })}`);
  }

  async importFile(file: File, options: ImportOptions): Promise<Report | Question> {
    const prepared = await prepare(file, options);
    if ("form" in prepared) return prepared;
    const given = query({
      name: file.name,
      like_from: options.likeFrom,
      as_list: options.asList ? "yes" : undefined,
      person: options.person,
      columns: prepared.columns && JSON.stringify(prepared.columns),
    });
    let job = await this.ask<Job>("POST", `imports?${given}`, prepared.content);
    while (job.state === "reading") {
      options.onProgress?.(job.entries);
      await new Promise((resolve) => setTimeout(resolve, LOOK));
      job = await this.ask<Job>("GET", `imports/${job.number}`);
    }
    if (job.error) throw new PageError(job.error.error, job.error.next);
    this.last = job;
    const report = job.report!;
    return { ...report, seenOnly: report["seen_only"]!, likeFrom: report["like_from"]!, leftOut: report["left_out"]! };
  }

  async accept(choices: [Unmatched, Item][]): Promise<number> {
    if (!this.last || !choices.length) return 0;
    const matches = choices.map(([{ title, year }, item]) => ({ title, year, item: item.id }));
    const { added } = await this.ask<{ added: number }>("POST", `imports/${this.last.number}/matches`, { matches });
    return added;
  }

  async add(item: string, time: number | null, liked: boolean): Promise<boolean> {
    return (await this.ask<{ added: boolean }>("POST", "entries", { item, time, liked })).added;
  }

  correct(number: number, change: { item: string; time: number | null; counts: boolean }): Promise<void> {
    return this.ask("PUT", `entries/${number}`, change);
  }

  remove(number: number): Promise<void> {
    return this.ask("DELETE", `entries/${number}`);
  }

  forgetEverything(): Promise<void> {
    this.last = null;
    return this.ask("DELETE", "everything");
  }

  exportCsv(): Promise<string> {
    return this.ask("GET", "history.csv", undefined, true);
  }

  async search(text: string): Promise<Item[]> {
    return text.trim() ? this.ask("GET", `items?${query({ search: text })}`) : [];
  }

  recommend({ genre, from, to, mine, along }: Filter, count: number): Promise<Recommendation[]> {
    const years = { from_year: from, to_year: to };
    const mines = { listed: mine === "only" || undefined, unlisted: mine === "not" || undefined };
    const others = along?.length ? JSON.stringify(along) : undefined;
    return this.ask("GET", `recommendations?${query({ count, genre, ...years, ...mines, along: others })}`);
  }

  similar(item: string, count: number): Promise<Item[]> {
    return this.ask("GET", `similar?${query({ item, count })}`);
  }

  choose(item: string, choice: { hidden?: boolean; disliked?: boolean }): Promise<void> {
    return this.ask("PUT", "choices", { item, ...choice });
  }

  choices(): Promise<Choices> {
    return this.ask("GET", "choices");
  }

  async people(): Promise<string[]> {
    return (await this.ask<State>("GET", "about")).people;
  }

  forgetPerson(person: string): Promise<void> {
    return this.ask("DELETE", `everything?${query({ person })}`);
  }

  async listed(): Promise<number> {
    return (await this.ask<State>("GET", "about")).listed;
  }

  clearList(): Promise<void> {
    return this.ask("DELETE", "list");
  }

  left(): Promise<Left> {
    return this.ask("GET", "left");
  }

  decide(federation: string, standing: Standing): Promise<Left> {
    return this.ask("PUT", "federation", { federation, standing });
  }

  setPolicy(change: Record<string, number | boolean | null>): Promise<Left> {
    return this.ask("PUT", "policy", change);
  }

  update(file: File): Promise<void> {
    return this.ask("POST", "model", file);
  }

  goBack(): Promise<void> {
    return this.ask("POST", "model/back");
  }
}

/** A file as the device can read it, or what has to be asked first. Tables are looked at here, the others there. */
async function prepare(
  file: File,
  { columns, user }: ImportOptions,
): Promise<{ content: Blob; columns?: Record<string, string> } | Question> {
  const bytes = new Uint8Array(await file.slice(0, FIRST).arrayBuffer());
  if (/\.zip$/i.test(file.name) && !isZip(bytes)) throw notAZip(file.name);
  const start = new TextDecoder().decode(bytes);
  const line = start.split("\n", 1)[0] ?? "";
  const known = /^(PK\x03\x04|SQLite format 3|\s*[[{])/.test(start) || line.includes("Letterboxd URI");
  if (known || line.split("\t").length === 9) return { content: file };
  const text = await file.text();
  const guessed = formOf(text);
  const form = columns ? { ...guessed, columns } : guessed;
  const users = usersOf(text, form);
  const unclear = !form.columns.item && !form.columns.title;
  if (unclear || (users.length > 1 && (user === undefined || !users.includes(user)))) return { form, users };
  const { user: _, ...kept } = form.columns;
  const readable = form.hasHeader && users.length <= 1 && form.separator === (file.name.endsWith(".tsv") ? "\t" : ",");
  return readable ? { content: file, columns: kept } : rewritten(text, form, user);
}

/** One person's rows as CSV with a header that the device knows. */
function rewritten(text: string, form: TableForm, user: string | undefined): { content: Blob; columns: Record<string, string> } {
  const kinds = KINDS.filter((kind) => kind !== "user" && form.columns[kind]);
  const at = (kind: (typeof KINDS)[number]) => form.header.indexOf(form.columns[kind] ?? "");
  const own = [...bodyOf(text, form)].filter(({ fields }) => user === undefined || fields[at("user")] === user);
  const lines = own.map(({ fields }) => csvLine(kinds.map((kind) => fields[at(kind)] ?? "")));
  const columns = Object.fromEntries(kinds.map((kind) => [kind, kind]));
  return { content: new Blob([csvLine([...kinds]), ...lines]), columns };
}
