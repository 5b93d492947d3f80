/** My history: search, correct, remove; add to it; what is not shown; the library; export and delete. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Choices, Device, HistoryEntry, Item, Report } from "./device";
import { seconds } from "./entry";
import { ImportBox, Outcome } from "./import_box";
import { Keeping } from "./keeping";
import { day, type Key, t, translated } from "./language";
import { Button, Failed, nameOf, Said, Title, TitleSearch } from "./parts";

const STEP = 50;
const isoDay = (time: number | null) => (time === null ? "" : new Date(time * 1000).toISOString().slice(0, 10));

export function HistoryScreen({ device, onKeep }: { device: Device; onKeep: () => void }) {
  const [search, setSearch] = useState("");
  const [entries, setEntries] = useState<HistoryEntry[] | null>(null);
  const [choices, setChoices] = useState<Choices>({ hidden: [], disliked: [] });
  const [listed, setListed] = useState(0);
  const [shown, setShown] = useState(STEP);
  const [editing, setEditing] = useState<number | null>(null);
  const [reports, setReports] = useState<{ history?: Report; list?: Report }>({});
  const [said, setSaid] = useState("");
  const wanted = useRef(search); // an answer that comes late must not replace a newer one
  wanted.current = search;
  const refresh = async () => {
    const asked = wanted.current;
    const found = await device.history(asked);
    if (asked === wanted.current) setEntries(found.reverse());
    setChoices(await device.choices());
    setListed(await device.listed());
  };
  useEffect(() => void refresh(), [search]);
  const act = async (of: Key, title: string, change: Promise<unknown>) => {
    await change;
    setSaid(t(of, { title }));
    setEditing(null);
    await refresh();
  };
  const forget = () => {
    setReports({}); // they name titles, too
    void act("everythingIsDeleted", "", device.forgetEverything());
  };
  const notShown = (kind: keyof Choices, name: Key) =>
    choices[kind].length > 0 && (
      <section aria-labelledby={`${kind}-title`}>
        <h2 id={`${kind}-title`}>{t(name)}</h2>
        <ul class="rows">
          {choices[kind].map((item) => (
            <li key={item.id}>
              <span>
                <Title item={item} />
              </span>
              <Button of="showAgain" about={nameOf(item)} onClick={() => void act("isShownAgain", nameOf(item), device.choose(item.id, { [kind]: false }))} />
            </li>
          ))}
        </ul>
      </section>
    );
  const add = (item: Item) => void act("isLiked", nameOf(item), device.add(item.id, Math.floor(Date.now() / 1000), true));
  return (
    <>
      <h1>{t("myHistory")}</h1>
      <section aria-labelledby="entries-title">
        <h2 id="entries-title">{t("entries", { n: entries?.length ?? 0 })}</h2>
        {(search !== "" || Boolean(entries?.length)) && (
          <label class="inline">
            {t("searchHistory")}
            <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
          </label>
        )}
        <Said>{said}</Said>
        {entries?.length === 0 && <p class="empty">{t(search ? "noEntryMatches" : "historyIsEmpty")}</p>}
        <ul class="rows">
          {entries?.slice(0, shown).map((each) => (
            <li key={each.number}>
              <span>
                <Title item={{ id: each.item, title: each.title, year: null, genres: [] }} />
                <span class="hint">
                  {[each.time === null ? t("dateUnknown") : day(each.time), translated(each.source), ...(each.counts ? [] : [t("seenOnly")])].join(" · ")}
                </span>
              </span>
              <span class="buttons">
                <Button of="correct" about={each.title} class="quiet" expanded={editing === each.number} onClick={() => setEditing(editing === each.number ? null : each.number)} />
                <Button of="remove" about={each.title} class="quiet" onClick={() => void act("isRemoved", each.title, device.remove(each.number))} />
              </span>
              {editing === each.number && (
                <Correction device={device} entry={each} onDone={() => void act("isCorrected", each.title, Promise.resolve())} />
              )}
            </li>
          ))}
        </ul>
        {entries && entries.length > shown && <Button of="showMore" onClick={() => setShown(shown + STEP)} />}
      </section>
      <section aria-labelledby="add-title">
        <h2 id="add-title">{t("addToHistory")}</h2>
        <ImportBox
          device={device}
          onDone={(history) => {
            setReports({ ...reports, history });
            void refresh();
          }}
        />
        {reports.history && <Outcome key={JSON.stringify(reports.history)} device={device} report={reports.history} onChange={() => void refresh()} />}
        <TitleSearch device={device} of="titleYouLike" action="add" onChoose={add} />
      </section>
      <section aria-labelledby="list-title">
        <h2 id="list-title">{t("library")}</h2>
        <p>{listed ? t("libraryHas", { n: listed }) : t("libraryIsEmpty")}</p>
        <ImportBox
          device={device}
          options={{ asList: true }}
          onDone={(list) => {
            setReports({ ...reports, list });
            void refresh();
          }}
        />
        {reports.list && <Outcome key={JSON.stringify(reports.list)} device={device} report={reports.list} onChange={() => void refresh()} />}
        {listed > 0 && <Button of="deleteLibrary" class="quiet" onClick={() => void act("libraryIsDeleted", "", device.clearList())} />}
      </section>
      {notShown("disliked", "dislikedTitles")}
      {notShown("hidden", "hiddenTitles")}
      <Keeping device={device} onKeep={onKeep} />
      <Everything device={device} onForget={forget} />
    </>
  );
}

/** Change the title or date of an entry, or whether it counts. */
function Correction({ device, entry, onDone }: { device: Device; entry: HistoryEntry; onDone: () => void }) {
  const [item, setItem] = useState({ id: entry.item, title: entry.title });
  const [date, setDate] = useState(isoDay(entry.time));
  const [counts, setCounts] = useState(entry.counts);
  const [error, setError] = useState<unknown>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    const time = date === isoDay(entry.time) ? entry.time : seconds(date);
    try {
      await device.correct(entry.number, { item: item.id, time, counts });
      onDone();
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <form class="panel filters" onSubmit={(event) => void save(event)}>
      <p>{t("itIs", { title: item.title })}</p>
      <TitleSearch device={device} of="itWasAnother" action="take" onChoose={setItem} />
      <label>
        {t("date")}
        <input type="date" value={date} onChange={(event) => setDate(event.currentTarget.value)} />
      </label>
      <label class="check">
        <input type="checkbox" checked={counts} onChange={(event) => setCounts(event.currentTarget.checked)} />
        {t("recommendFromIt")}
      </label>
      <Failed error={error} />
      <button type="submit" class="main">
        {t("save")}
      </button>
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
      <h2 id="everything-title">{t("allOfIt")}</h2>
      <p>{t("allOfItHow")}</p>
      <div class="buttons">
        <Button of="exportHistory" onClick={() => void save()} />
        {asked ? (
          <>
            <Button
              of="yesDelete"
              class="danger"
              onClick={() => {
                setAsked(false);
                onForget();
              }}
            />
            <Button of="keepHistory" onClick={() => setAsked(false)} />
          </>
        ) : (
          <Button of="deleteEverything" class="quiet" onClick={() => setAsked(true)} />
        )}
      </div>
    </section>
  );
}
