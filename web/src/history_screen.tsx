/** My history: import, search, correct, remove, export. */

import { useEffect, useRef, useState } from "preact/hooks";
import { dateOf } from "./browser_device";
import type { Device, HistoryEntry, Item } from "./device";
import { seconds } from "./entry";
import { ImportBox } from "./import_box";
import { Keeping } from "./keeping";
import { counted, Failed, FilmSearch, Said } from "./parts";

const STEP = 50;

export function HistoryScreen({ device, onKeep }: { device: Device; onKeep: () => void }) {
  const [search, setSearch] = useState("");
  const [entries, setEntries] = useState<HistoryEntry[]>([]);
  const [hidden, setHidden] = useState<Item[]>([]);
  const [shown, setShown] = useState(STEP);
  const [editing, setEditing] = useState<number | null>(null);
  const [listed, setListed] = useState(0);
  const [times, setTimes] = useState(0); // that everything was deleted
  const [said, setSaid] = useState("");
  const wanted = useRef(search); // an answer that comes late must not replace a newer one
  wanted.current = search;
  const refresh = async () => {
    const asked = wanted.current;
    const found = await device.history(asked);
    if (asked === wanted.current) setEntries(found.reverse());
    setHidden(await device.hidden());
    setListed((await device.folder?.listed()) ?? 0);
  };
  useEffect(() => void refresh(), [search]);
  const act = async (text: string, change: Promise<unknown>) => {
    await change;
    setSaid(text);
    setEditing(null);
    await refresh();
  };
  const forget = () => {
    setTimes(times + 1);
    void act("Everything is deleted.", device.forgetEverything());
  };
  const now = () => Math.floor(Date.now() / 1000);
  return (
    <>
      <h1>My history</h1>
      <ImportBox key={times} device={device} onChange={() => void refresh()} />
      <FilmSearch
        device={device}
        label="Add a film that you like"
        action="Add"
        onChoose={(item) => void act(`${item.title} is in your history.`, device.add(item.id, now(), true))}
      />
      <section aria-labelledby="entries-title">
        <h2 id="entries-title">{counted(entries.length, "entry", "entries")}</h2>
        <label class="inline">
          Search my history
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
        <Said>{said}</Said>
        <ul class="entries">
          {entries.slice(0, shown).map((each) => (
            <li key={each.number}>
              <span class="what">{each.title}</span>
              <span class="when">
                {dateOf(each.time).slice(0, 10) || "date unknown"} · {each.source}
                {each.counts ? "" : " · seen only"}
              </span>
              <span class="buttons">
                <button type="button" aria-expanded={editing === each.number} onClick={() => setEditing(editing === each.number ? null : each.number)}>
                  Correct<span class="hidden"> {each.title}</span>
                </button>
                <button type="button" onClick={() => void act(`${each.title} is removed.`, device.remove(each.number))}>
                  Remove<span class="hidden"> {each.title}</span>
                </button>
              </span>
              {editing === each.number && (
                <Correction device={device} entry={each} onDone={() => void act(`${each.title} is corrected.`, Promise.resolve())} />
              )}
            </li>
          ))}
        </ul>
        {entries.length > shown && (
          <button type="button" onClick={() => setShown(shown + STEP)}>
            Show more
          </button>
        )}
      </section>
      {hidden.length > 0 && (
        <section aria-labelledby="hidden-title">
          <h2 id="hidden-title">Hidden films</h2>
          <ul class="entries">
            {hidden.map((item) => (
              <li key={item.id}>
                <span class="what">{item.title}</span>
                <button type="button" onClick={() => void act(`${item.title} is shown again.`, device.hide(item.id, false))}>
                  Show again<span class="hidden"> {item.title}</span>
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
      {listed > 0 && (
        <section aria-labelledby="list-title">
          <h2 id="list-title">My list</h2>
          <p>{counted(listed, "film", "films")} to choose from.</p>
          <button type="button" onClick={() => void act("The list is deleted.", device.folder!.clearList())}>
            Delete the list
          </button>
        </section>
      )}
      <Keeping device={device} onKeep={onKeep} />
      <Everything device={device} onForget={forget} />
    </>
  );
}

/** Change the film or date of an entry, or whether it counts. */
function Correction({ device, entry, onDone }: { device: Device; entry: HistoryEntry; onDone: () => void }) {
  const [film, setFilm] = useState({ id: entry.item, title: entry.title });
  const [date, setDate] = useState(dateOf(entry.time).slice(0, 10));
  const [counts, setCounts] = useState(entry.counts);
  const [error, setError] = useState<unknown>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    const time = date === dateOf(entry.time).slice(0, 10) ? entry.time : seconds(date);
    try {
      await device.correct(entry.number, { item: film.id, time, counts });
      onDone();
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <form class="correction" onSubmit={(event) => void save(event)}>
      <p>Film: {film.title}</p>
      <FilmSearch device={device} label="It was another film" action="Take" onChoose={setFilm} />
      <label>
        Date
        <input type="date" value={date} onChange={(event) => setDate(event.currentTarget.value)} />
      </label>
      <label class="check">
        <input type="checkbox" checked={counts} onChange={(event) => setCounts(event.currentTarget.checked)} />
        Recommend from it
      </label>
      <Failed error={error} />
      <button type="submit">Save</button>
    </form>
  );
}

function Everything({ device, onForget }: { device: Device; onForget: () => void }) {
  const [asked, setAsked] = useState(false);
  const save = async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await device.exportCsv()], { type: "text/csv" }));
    link.download = "history.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <section aria-labelledby="everything-title">
      <h2 id="everything-title">All of it</h2>
      <p>
        <code>history.csv</code> can be imported here again, and by <code>solera device import</code>.
      </p>
      <div class="buttons">
        <button type="button" onClick={() => void save()}>
          Export history.csv
        </button>
        {!asked && (
          <button type="button" onClick={() => setAsked(true)}>
            Delete everything
          </button>
        )}
        {asked && (
          <>
            <button
              type="button"
              class="danger"
              onClick={() => {
                setAsked(false);
                onForget();
              }}
            >
              Yes, delete my history here
            </button>
            <button type="button" onClick={() => setAsked(false)}>
              Keep it
            </button>
          </>
        )}
      </div>
    </section>
  );
}
