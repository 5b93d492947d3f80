/** How the list is made: from the library or not, together with others, how varied, which genre and years. */

import { useEffect, useId, useState } from "preact/hooks";
import type { Device, Filter } from "./device";
import { ImportBox } from "./import_box";
import { number, t } from "./language";
import { Button } from "./parts";

const MINE = [
  ["all", undefined],
  ["mineOnly", "only"],
  ["notMine", "not"],
] as const;

/** What is asked for: a filter, how varied, and how many. */
export interface Wish {
  filter: Filter;
  variety: number;
  count: number;
}

interface Props {
  device: Device;
  wish: Wish;
  onChange: (change: Partial<Wish>) => void;
}

export function Tools({ device, wish, onChange }: Props) {
  const [open, setOpen] = useState<"together" | "tune" | null>(null);
  const [listed, setListed] = useState(0);
  useEffect(() => void device.listed().then(setListed), []);
  const { mine, along = [], genre, from, to } = wish.filter;
  const tuned = [wish.variety > 0, genre, from, to].filter(Boolean).length;
  const disclosure = (which: "together" | "tune", active: number) => (
    <button type="button" class="chip" aria-expanded={open === which} aria-pressed={undefined} onClick={() => setOpen(open === which ? null : which)}>
      {t(which)}
      {active > 0 && <span class="count">{number(active)}</span>}
    </button>
  );
  return (
    <>
      <div class="tools">
        {listed > 0 && (
          <div class="segments" role="group" aria-label={t("library")}>
            {MINE.map(([name, value]) => (
              <Button key={name} of={name} pressed={mine === value} onClick={() => onChange({ filter: changed(wish.filter, { mine: value }) })} />
            ))}
          </div>
        )}
        {disclosure("together", along.length)}
        {disclosure("tune", tuned)}
      </div>
      {open === "together" && <Together device={device} wish={wish} onChange={onChange} />}
      {open === "tune" && <Tune device={device} wish={wish} onChange={onChange} />}
    </>
  );
}

/** A filter with a change; undefined takes something out. */
function changed(filter: Filter, change: { [Name in keyof Filter]?: Filter[Name] | undefined }): Filter {
  const all = Object.entries({ ...filter, ...change });
  return Object.fromEntries(all.filter(([, value]) => value !== undefined && value !== "")) as Filter;
}

function Tune({ device, wish, onChange }: Props) {
  const { filter, variety } = wish;
  const id = useId();
  const [least, most] = device.years ?? [];
  const year = (name: "from" | "to", of: "fromYear" | "toYear", example?: number) => (
    <label>
      {t(of)}
      <input
        type="number"
        min={least}
        max={most}
        placeholder={`${example}`}
        defaultValue={filter[name] ?? ""}
        onChange={(event) => {
          const text = event.currentTarget.value;
          onChange({ filter: changed(filter, { [name]: text ? Number(text) : undefined }) });
        }}
      />
    </label>
  );
  return (
    <form class="panel filters" aria-label={t("tune")} onSubmit={(event) => event.preventDefault()}>
      <div class="variety">
        <label for={id}>{t("variety")}</label>
        <input
          id={id}
          type="range"
          min="0"
          max="0.8"
          step="0.2"
          value={variety}
          aria-valuetext={t("varietyStep", { n: Math.round(variety * 5) })}
          onInput={(event) => onChange({ variety: Number(event.currentTarget.value) })}
        />
        <div class="ends" aria-hidden="true">
          <span>{t("closest")}</span>
          <span>{t("mostVaried")}</span>
        </div>
      </div>
      {device.genres.length > 0 && (
        <label>
          {t("genre")}
          <select value={filter.genre ?? ""} onChange={(event) => onChange({ filter: changed(filter, { genre: event.currentTarget.value }) })}>
            <option value="">{t("allGenres")}</option>
            {device.genres.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      )}
      {device.years && year("from", "fromYear", least)}
      {device.years && year("to", "toYear", most)}
    </form>
  );
}

/** Who else is to like it. */
function Together({ device, wish, onChange }: Props) {
  const along = wish.filter.along ?? [];
  const [people, setPeople] = useState<string[] | null>(null);
  const [name, setName] = useState("");
  const [adding, setAdding] = useState(false);
  const look = async () => setPeople(await device.people());
  useEffect(() => void look(), []);
  const choose = (names: string[]) => onChange({ filter: changed(wish.filter, { along: names.length ? names : undefined }) });
  const without = (person: string) => along.filter((each) => each !== person);
  const forget = async (person: string) => {
    await device.forgetPerson(person);
    choose(without(person));
    await look();
  };
  if (!people) return null;
  return (
    <section class="panel" aria-label={t("together")}>
      <p>{t("togetherHow")}</p>
      {people.length > 0 && (
        <ul class="people">
          {people.map((person) => (
            <li key={person}>
              <button
                type="button"
                class="chip"
                aria-pressed={along.includes(person)}
                onClick={() => choose(along.includes(person) ? without(person) : [...along, person])}
              >
                {person}
              </button>
              <Button of="forget" about={person} class="quiet" onClick={() => void forget(person)} />
            </li>
          ))}
        </ul>
      )}
      {adding || !people.length ? (
        <>
          <label class="inline">
            {t("nameOfPerson")}
            <input value={name} maxLength={60} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} />
          </label>
          {name.trim() !== "" && (
            <ImportBox
              device={device}
              options={{ person: name.trim() }}
              onDone={() => {
                setAdding(false);
                void look();
                choose([...without(name.trim()), name.trim()]);
              }}
            />
          )}
        </>
      ) : (
        <Button of="addPerson" onClick={() => setAdding(true)} />
      )}
    </section>
  );
}
