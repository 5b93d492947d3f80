/** Import a file: drop or choose it, answer what its columns are, see what became of every row. */

import { useState } from "preact/hooks";
import type { Device, ImportOptions, Item, Question, Report, Unmatched } from "./device";
import { number, t, translated } from "./language";
import { Button, Failed, FileButton, Said, Title, useDrop } from "./parts";
import { type Columns, KINDS, type Kind } from "./table";

const LISTED = 50; // titles that are not in the catalogue

interface Props {
  device: Device;
  /** Whose history it is, or that it is a list to choose from. */
  options?: ImportOptions;
  onDone: (report: Report) => void;
}

export function ImportBox({ device, options = {}, onDone }: Props) {
  const [likeFrom, setLikeFrom] = useState("");
  const [reading, setReading] = useState("");
  const [asked, setAsked] = useState<{ file: File; question: Question } | null>(null);
  const [error, setError] = useState<unknown>(null);

  const take = async (file: File, more: ImportOptions = {}) => {
    setError(null);
    setAsked(null);
    setReading(t("readingFile", { file: file.name }));
    try {
      const onProgress = (n: number) => setReading(t("rowsRead", { file: file.name, n }));
      const given = { ...options, ...(likeFrom ? { likeFrom: Number(likeFrom) } : {}), ...more, onProgress };
      const found = await device.importFile(file, given);
      if ("form" in found) setAsked({ file, question: found });
      else onDone(found);
      void navigator.storage?.persist?.(); // asks the browser not to tidy the history away
    } catch (thrown) {
      setError(thrown);
    } finally {
      setReading("");
    }
  };
  const accept = `.zip,.csv,.tsv,.txt,.dat,.data${device.folder ? ",.db,.json,.jsonl" : ""}`;
  return (
    <div class="import">
      <div {...useDrop((file) => void take(file))}>
        <FileButton of="chooseFile" accept={accept} onFile={(file) => void take(file)} />
        <p>{t("orDrop")}</p>
        <p class="hint">{t(device.folder ? "filesFolder" : "filesBrowser")}</p>
        {!options.asList && (
          <details>
            <summary>{t("ratings")}</summary>
            <label class="inline">
              {t("likeFrom")}
              <input
                type="number"
                min="0"
                max="100"
                step="0.5"
                placeholder={number(3.5)}
                value={likeFrom}
                onChange={(event) => setLikeFrom(event.currentTarget.value)}
              />
            </label>
            <p class="hint">{t("likeFromHow")}</p>
          </details>
        )}
        <div class="progress" role="status">
          {reading && (
            <>
              <progress aria-label={reading} />
              {reading}
            </>
          )}
        </div>
      </div>
      <Failed error={error} />
      {asked && <Table question={asked.question} onAnswer={(given) => void take(asked.file, given)} />}
    </div>
  );
}

/** Which column is what, and whose rows are meant. */
function Table({ question, onAnswer }: { question: Question; onAnswer: (options: ImportOptions) => void }) {
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
    <form class="panel filters" onSubmit={answer}>
      <p>
        <strong>{users.length > 1 ? t("rowsOfPeople", { n: users.length }) : t("whichColumn")}</strong>
      </p>
      {users.length > 1 && (
        <label>
          {t("yourId")}
          <input required value={user} placeholder={users[0]} onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
      )}
      {KINDS.map((kind) => (
        <label key={kind}>
          {t(`column_${kind}`)}
          <select value={columns[kind] ?? ""} onChange={(event) => set(kind, event.currentTarget.value)}>
            <option value="">–</option>
            {form.header.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      ))}
      <button type="submit" class="main">
        {t("import")}
      </button>
    </form>
  );
}

/** What became of every row of a file: in one sentence, and in detail. */
export function Outcome({ device, report, onChange }: { device: Device; report: Report; onChange: () => void }) {
  const rows: [string, number][] = [
    [t("added"), report.added],
    [t("knownAlready"), report.known],
    [t("repeated"), report.repeated],
    [t("notInCatalogue"), report.unknown],
    ...Object.entries(report.leftOut).map(([reason, count]): [string, number] => [translated(reason), count]),
  ];
  const near = report.unmatched.filter((each) => each.near.length > 0);
  const others = report.unmatched.filter((each) => each.near.length === 0);
  const below = report.seenOnly ? ` ${t("ratedBelow", { n: report.seenOnly, rating: report.likeFrom })}` : "";
  return (
    <div class="outcome">
      <Said>
        {t("foundInCatalogue", { n: report.items, file: report.file })}
        {below}
      </Said>
      {near.length > 0 && <Near device={device} near={near} onChange={onChange} />}
      <details>
        <summary>{t("everyRow")}</summary>
        <table>
          <caption class="hidden">{t("everyRow")}</caption>
          <tbody>
            {rows
              .filter(([, count], at) => count > 0 || !at)
              .map(([name, count]) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>{number(count)}</td>
                </tr>
              ))}
          </tbody>
        </table>
        {report.faults.map((fault) => (
          <p key={fault} class="hint">
            {t("badRow", { what: translated(fault) })}
          </p>
        ))}
        {report.unused.length > 0 && <p class="hint">{t("notUsed", { files: report.unused.slice(0, 20).join(", ") })}</p>}
        {others.length > 0 && (
          <>
            <p>{t("titlesNotInCatalogue", { n: others.length })}</p>
            <ul>
              {others.slice(0, LISTED).map((each) => (
                <li key={named(each)}>{named(each)}</li>
              ))}
              {others.length > LISTED && <li>{t("andMore", { n: others.length - LISTED })}</li>}
            </ul>
          </>
        )}
      </details>
    </div>
  );
}

const named = ({ title, year }: Unmatched) => (year === null ? title : `${title} (${year})`);

/** Titles that resemble one of the catalogue, and what may have been meant. */
function Near({ device, near, onChange }: { device: Device; near: Unmatched[]; onChange: () => void }) {
  const [left, setLeft] = useState(near);
  const [said, setSaid] = useState("");
  const choose = async (each: Unmatched, item: Item | null) => {
    if (item) {
      await device.accept([[each, item]]);
      setSaid(t("isTaken", { title: named(each), item: item.title }));
      onChange();
    }
    setLeft((before) => before.filter((other) => other !== each));
  };
  return (
    <>
      {left.length > 0 && (
        <details>
          <summary>{t("similarTitles", { n: left.length })}</summary>
          <ul class="rows">
            {left.slice(0, LISTED).map((each) => (
              <li key={named(each)}>
                <span>{t("didYouMean", { title: named(each) })}</span>
                <span class="buttons">
                  {each.near.map((item) => (
                    <button type="button" key={item.id} onClick={() => void choose(each, item)}>
                      <Title item={item} />
                    </button>
                  ))}
                  <Button of="noneOfThese" about={named(each)} class="quiet" onClick={() => void choose(each, null)} />
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
      <Said>{said}</Said>
    </>
  );
}
