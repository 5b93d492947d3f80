/**
 * A page beside the one that recommends, which sends threshold reports of the history in this browser if the person
 * turns that on, and shows what went. Its policy lets it connect to the helper alone. The page that recommends still
 * connects to nothing.
 */

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { speakFirst, t, translated } from "./language";
import { Button, Text } from "./parts";
import { type Measurement, ORDERED } from "./reports";
import { type Agreement, fresh, type Kept, Ledger, publicLine, send } from "./reporting";
import { Store } from "./store";
import "./style.css";

interface Settings {
  agreed: Agreement;
  /** Name of the database with the history. */
  store: string;
  /** Ids and titles, in the catalogue's order. */
  items: [string, string][];
}

interface Saved extends Kept {
  on: boolean;
}

const TABLE = "kept";

/** The browser's database of this page. */
class Database {
  private constructor(private readonly database: IDBDatabase) {}

  static async open(name: string): Promise<Database> {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
    return new Database(await settled(request));
  }

  read(): Promise<Saved | undefined> {
    return settled<Saved | undefined>(this.database.transaction(TABLE).objectStore(TABLE).get(TABLE));
  }

  write(saved: Saved): Promise<void> {
    return new Promise((resolve, reject) => {
      const writing = this.database.transaction(TABLE, "readwrite", { durability: "strict" });
      writing.objectStore(TABLE).put(saved, TABLE);
      writing.oncomplete = () => resolve();
      writing.onabort = () => reject(writing.error);
    });
  }
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Numbers of the items that count, each where it was first met, oldest first. */
async function historyOf({ store, items }: Settings): Promise<number[]> {
  const number = new Map(items.map(([id], row) => [id, row]));
  const { entries, marks } = await Store.open(store);
  const when = ({ time }: { time: number | null }) => time ?? Number.NEGATIVE_INFINITY;
  const ordered = [...entries.values()].sort((a, b) => when(a) - when(b) || a.number - b.number);
  const rows = ordered.flatMap(({ item }) => (marks.seenOnly.has(item) ? [] : (number.get(item) ?? [])));
  return [...new Set(rows)];
}

function Contribute({ settings, database }: { settings: Settings; database: Database }) {
  const { agreed, items } = settings;
  const [saved, setSaved] = useState<Saved | null>(null);
  const [line, setLine] = useState("");
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const save = async (next: Saved) => {
    await database.write(next);
    setSaved({ ...next });
  };
  /** The ledger, without the items that were deleted from the history since. */
  const ledger = async (of: Saved, history: number[]) => {
    const made = new Ledger(of, () => save(of));
    await made.keepOnly(new Set(history));
    return made;
  };
  useEffect(() => {
    void (async () => {
      const found = await database.read();
      if (found) await ledger(found, await historyOf(settings));
    })();
  }, []);
  useEffect(() => {
    if (saved) void publicLine(saved.pair).then(setLine);
  }, [saved]);
  const turn = async (on: boolean) => {
    await save({ ...(saved ?? (await fresh())), on });
    setSaid(on ? "" : t("turnedOff"));
  };
  const sendNow = async () => {
    if (!saved) return;
    setBusy(true);
    setSaid(t("sending"));
    try {
      const history = await historyOf(settings);
      const epoch = await send(agreed, await ledger(saved, history), history);
      const went = saved.taken.filter((each) => each.epoch === epoch).length;
      setSaid(t("sentNow", { n: went }));
    } catch (error) {
      setSaid(t("notSent", { why: translated(error instanceof Error ? error.message : String(error)) }));
    }
    setBusy(false);
  };
  const gone = saved?.taken.filter((each) => each.gone) ?? [];
  return (
    <main>
      <h1>{t("contributeTo", { federation: agreed.federation })}</h1>
      <p>{t("contributeWhat")}</p>
      <ul>
        <li>{t("contributeServer", { n: agreed.leastDevices })}</li>
        {agreed.ordered && <li>{t("contributeOrder")}</li>}
        <li>{t("contributeHelper", { host: new URL(agreed.helper).host })}</li>
        <li>{t("contributeBoth")}</li>
        <li>{t("contributeGone")}</li>
      </ul>
      {saved?.on ? (
        <>
          <p>{t("contributeKey")}</p>
          <pre tabIndex={0} aria-label={t("key")}>
            {line}
          </pre>
          <div class="buttons">
            <button type="button" class="main" disabled={busy} onClick={() => void sendNow()}>
              {t("sendNew")}
            </button>
            <Button of="turnOff" onClick={() => void turn(false)} />
          </div>
        </>
      ) : (
        <Button of="turnOn" class="main" onClick={() => void turn(true)} />
      )}
      <p role="status">{said}</p>
      <p>
        <Text of="backConnects" link={<a href="index.html">{t("backToList")}</a>} />
      </p>
      <h2>{t("wentFrom")}</h2>
      {gone.length ? (
        <ol class="went">
          {gone.map(({ digest, epoch, measurement }) => (
            <li key={digest}>
              {measurement ? named(measurement, items) : t("wentDeleted")} <span class="hint">{t("epoch", { n: epoch })}</span>
            </li>
          ))}
        </ol>
      ) : (
        <p>{t("nothingWent")}</p>
      )}
    </main>
  );
}

function named({ kind, first, second }: Measurement, items: Settings["items"]): string {
  const title = (row: number) => items[row]?.[1] ?? `${row}`;
  const titles = { first: title(first), second: title(second) };
  return first === second ? titles.first : t(kind === ORDERED ? "wentInOrder" : "wentPair", titles);
}

async function start(): Promise<void> {
  speakFirst();
  const settings = JSON.parse(document.getElementById("settings")!.textContent!) as Settings;
  const database = await Database.open(`solera reports ${settings.agreed.federation}`);
  const root = document.getElementById("app")!;
  root.textContent = "";
  render(<Contribute settings={settings} database={database} />, root);
}

void start();
