/** Import a file: drop or choose it, answer what its columns are, see what became of every row. */

import { useRef, useState } from "preact/hooks";
import type { Device, ImportOptions, Item, Question, Report, Unmatched } from "./device";
import { counted, Failed, Said } from "./parts";
import { type Columns, KINDS, type Kind } from "./table";

const LISTED = 50; // titles that are not in the catalogue

export function ImportBox({ device, onChange }: { device: Device; onChange: () => void }) {
  const [likeFrom, setLikeFrom] = useState("");
  const [asList, setAsList] = useState(false);
  const [over, setOver] = useState(false);
  const [reading, setReading] = useState("");
  const [report, setReport] = useState<Report | null>(null);
  const [asked, setAsked] = useState<{ file: File; question: Question } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const input = useRef<HTMLInputElement>(null);

  const take = async (file: File, more: ImportOptions = {}) => {
    setError(null);
    setReport(null);
    setAsked(null);
    try {
      const options: ImportOptions = { asList, ...(likeFrom ? { likeFrom: Number(likeFrom) } : {}), ...more };
      options.onProgress = (entries) => setReading(`${file.name}: ${counted(entries, "entry", "entries")} read …`);
      setReading(`Reading ${file.name} …`);
      const found = await device.importFile(file, options);
      if ("form" in found) setAsked({ file, question: found });
      else setReport(found);
      onChange();
      void navigator.storage?.persist?.(); // asks the browser not to tidy the history away
    } catch (thrown) {
      setError(thrown);
    } finally {
      setReading("");
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer?.files[0];
    if (file) void take(file);
  };
  return (
    <section class="import" aria-labelledby="import-title">
      <h2 id="import-title">Import a history</h2>
      <div
        class={over ? "drop over" : "drop"}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <p>
          Drop a file here: the zip that Letterboxd hands out, one of its CSV files, MovieLens ratings, any CSV file
          {device.folder ? ", Jellyfin's playback database or backup, the export of ListenBrainz." : "."}
        </p>
        <label class="file">
          Choose a file
          <input
            ref={input}
            type="file"
            accept={`.zip,.csv,.tsv,.txt,.dat,.data${device.folder ? ",.db,.json,.jsonl" : ""}`}
            onChange={(event) => {
              const file = event.currentTarget.files?.[0];
              if (file) void take(file);
              event.currentTarget.value = "";
            }}
          />
        </label>
        {device.folder && (
          <label class="check">
            <input type="checkbox" checked={asList} onChange={(event) => setAsList(event.currentTarget.checked)} />
            It is a watchlist or library: films to choose from, not a history
          </label>
        )}
        <label>
          You like films rated from this on
          <input
            type="number"
            min="0"
            max="100"
            step="0.5"
            placeholder="3.5"
            value={likeFrom}
            onChange={(event) => setLikeFrom(event.currentTarget.value)}
          />
        </label>
        <p class="hint">
          Films with lower ratings are seen only: they are not recommended, and nothing is learned from them. Films
          without a rating count.
        </p>
      </div>
      <Said>{reading}</Said>
      <Failed error={error} />
      {asked && <Columns question={asked.question} onAnswer={(options) => void take(asked.file, options)} />}
      {report && <Outcome device={device} report={report} onChange={onChange} />}
    </section>
  );
}

const KIND_NAMES: Record<Kind, string> = {
  title: "Title",
  item: "Id in this catalogue",
  year: "Year",
  time: "Date",
  rating: "Rating",
  counts: "Counts (yes or no)",
  user: "Person",
};

/** Which column is what, and whose rows are meant. */
function Columns({ question, onAnswer }: { question: Question; onAnswer: (options: ImportOptions) => void }) {
  const { form, users } = question;
  const [columns, setColumns] = useState<Columns>(form.columns);
  const [user, setUser] = useState("");
  const set = (kind: Kind, name: string) => {
    const { [kind]: _, ...others } = columns;
    setColumns(name ? { ...others, [kind]: name } : others);
  };
  const answer = (event: Event) => {
    event.preventDefault();
    onAnswer({ columns, ...(user ? { user } : {}) });
  };
  return (
    <form class="columns" onSubmit={answer}>
      <h3>{users.length > 1 ? `The file has rows of ${users.length.toLocaleString("en")} people` : "Which column is what?"}</h3>
      {users.length > 1 && (
        <label>
          Your id in the file
          <input required value={user} placeholder={users[0]} onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
      )}
      {KINDS.map((kind) => (
        <label key={kind}>
          {KIND_NAMES[kind]}
          <select value={columns[kind] ?? ""} onChange={(event) => set(kind, event.currentTarget.value)}>
            <option value="">–</option>
            {form.header.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      ))}
      <button type="submit">Import</button>
    </form>
  );
}

/** What became of every row of a file. */
function Outcome({ device, report, onChange }: { device: Device; report: Report; onChange: () => void }) {
  const rows: [string, number][] = [
    ["added", report.added],
    ["known already", report.known],
    ["more than once in the file", report.repeated],
    ["not in the catalogue", report.unknown],
    ...Object.entries(report.leftOut),
  ];
  const below = report.seenOnly ? `, ${report.seenOnly} of them rated below ${report.likeFrom}: seen only` : "";
  return (
    <>
      <Said>
        {counted(report.items, "film", "films")} of {report.file} found in the catalogue{below}.
      </Said>
      <table>
        <caption>What became of every row</caption>
        <tbody>
          {rows
            .filter(([name, count]) => count > 0 || name === "added")
            .map(([name, count]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{count.toLocaleString("en")}</td>
              </tr>
            ))}
        </tbody>
      </table>
      {report.faults.map((fault) => (
        <p key={fault} class="hint">
          Bad row: {fault}
        </p>
      ))}
      {report.unused.length > 0 && <p class="hint">Not used: {report.unused.slice(0, 20).join(", ")}</p>}
      {report.unmatched.length > 0 && <Missing device={device} unmatched={report.unmatched} onChange={onChange} />}
    </>
  );
}

/** Titles that are not in the catalogue, and the films that may have been meant. */
function Missing(props: { device: Device; unmatched: Unmatched[]; onChange: () => void }) {
  const { device, unmatched, onChange } = props;
  const [chosen, setChosen] = useState<Map<Unmatched, Item>>(new Map());
  const [said, setSaid] = useState("");
  const near = unmatched.filter((each) => each.near.length > 0);
  const others = unmatched.filter((each) => each.near.length === 0);
  const choose = (each: Unmatched, id: string) => {
    const item = each.near.find((other) => other.id === id);
    const next = new Map(chosen);
    if (item) next.set(each, item);
    else next.delete(each);
    setChosen(next);
  };
  const accept = async () => {
    const added = await device.accept([...chosen]);
    setSaid(`${counted(added, "entry", "entries")} added.`);
    onChange();
  };
  const named = ({ title, year }: Unmatched) => (year === null ? title : `${title} (${year})`);
  return (
    <div class="missing">
      {near.length > 0 && !said && (
        <fieldset>
          <legend>{counted(near.length, "title has", "titles have")} a similar one in the catalogue. Which is meant?</legend>
          {near.slice(0, LISTED).map((each) => (
            <label key={named(each)}>
              {named(each)}
              <select onChange={(event) => choose(each, event.currentTarget.value)}>
                <option value="">none of these</option>
                {each.near.map((item) => (
                  <option key={item.id} value={item.id}>
                    {item.title}
                  </option>
                ))}
              </select>
            </label>
          ))}
          <button type="button" onClick={() => void accept()}>
            {chosen.size ? `Accept ${counted(chosen.size, "match", "matches")}` : "Go on without them"}
          </button>
        </fieldset>
      )}
      <Said>{said}</Said>
      {others.length > 0 && (
        <details>
          <summary>{counted(others.length, "title is", "titles are")} not in the catalogue</summary>
          <ul>
            {others.slice(0, LISTED).map((each) => (
              <li key={named(each)}>{named(each)}</li>
            ))}
            {others.length > LISTED && <li>and {(others.length - LISTED).toLocaleString("en")} more</li>}
          </ul>
        </details>
      )}
    </div>
  );
}
