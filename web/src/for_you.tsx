/** For you: what the model recommends from the history, with its reasons. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Device, Filter, Item, Reason, Recommendation } from "./device";
import { ImportBox } from "./import_box";
import { Keeping } from "./keeping";
import { counted, FilmSearch, Said, Title } from "./parts";

const STEP = 24;
const SIMILAR = 8;

export function ForYou({ device, onKeep }: { device: Device; onKeep: () => void }) {
  const [filter, setFilter] = useState<Filter>({});
  const [count, setCount] = useState(STEP);
  const [found, setFound] = useState<Recommendation[] | null>(null);
  const [started, setStarted] = useState<boolean | null>(null);
  const [said, setSaid] = useState("");
  const [undo, setUndo] = useState<Item | null>(null);

  const latest = useRef({ filter, count }); // an answer that comes late must not replace a newer one
  if (latest.current.filter !== filter || latest.current.count !== count) latest.current = { filter, count };
  const refresh = async () => {
    const asked = latest.current;
    const history = await device.history();
    setStarted((before) => before || history.some((each) => each.counts));
    const found = await device.recommend(asked.filter, asked.count);
    if (asked === latest.current) setFound(found);
  };
  useEffect(() => void refresh(), [filter, count]);

  const act = async (text: string, change: Promise<unknown>, hidden: Item | null = null) => {
    await change;
    setSaid(text);
    setUndo(hidden);
    await refresh();
  };
  const begin = () => {
    setStarted(true);
    void refresh();
  };
  if (found === null) {
    return (
      <>
        <h1>For you</h1>
        <p role="status">Looking for films …</p>
      </>
    );
  }
  if (!started) return <Welcome device={device} onDone={begin} onKeep={onKeep} />;
  const now = Math.floor(Date.now() / 1000);
  return (
    <>
      <h1>For you</h1>
      <Filters device={device} filter={filter} onChange={setFilter} />
      <Said>
        {said}
        {undo && (
          <button type="button" onClick={() => void act(`${undo.title} is shown again.`, device.hide(undo.id, false))}>
            Undo
          </button>
        )}
      </Said>
      <ol class="films">
        {found.map((each) => (
          <Film
            key={each.item.id}
            device={device}
            recommendation={each}
            onLiked={() => void act(`${each.item.title} is in your history.`, device.add(each.item.id, now, true))}
            onSeen={() => void act(`${each.item.title} is seen.`, device.add(each.item.id, now, false))}
            onHide={() => void act(`${each.item.title} is hidden.`, device.hide(each.item.id, true), each.item)}
          />
        ))}
      </ol>
      {!found.length && <p>No film passes these filters.</p>}
      {found.length === count && (
        <button type="button" onClick={() => setCount(count + STEP)}>
          Show more
        </button>
      )}
    </>
  );
}

/** What somebody sees who has no history yet. */
function Welcome({ device, onDone, onKeep }: { device: Device; onDone: () => void; onKeep: () => void }) {
  const [films, setFilms] = useState(0);
  const count = async () => {
    const counting = (await device.history()).filter((each) => each.counts);
    setFilms(new Set(counting.map((each) => each.item)).size);
  };
  const add = (item: Item) => void device.add(item.id, Math.floor(Date.now() / 1000), true).then(count);
  return (
    <>
      <h1>What have you watched?</h1>
      <p>
        This page recommends films from your history. Your history stays {device.place}
        {device.folder ? "." : ": the page cannot send it anywhere."}
      </p>
      <ImportBox device={device} onChange={() => void count()} />
      <FilmSearch device={device} label="Or name films that you like" action="Add" onChoose={add} />
      {films > 0 && (
        <p>
          <button type="button" class="main" onClick={onDone}>
            Show what {counted(films, "film recommends", "films recommend")}
          </button>
        </p>
      )}
      <Keeping device={device} onKeep={onKeep} />
    </>
  );
}

function Filters(props: { device: Device; filter: Filter; onChange: (filter: Filter) => void }) {
  const { device, filter, onChange } = props;
  const { genre: _, from, to, ...rest } = filter;
  const [listed, setListed] = useState(0);
  useEffect(() => void device.folder?.listed().then(setListed), []);
  const set = (name: "from" | "to") => (event: Event) => {
    const text = (event.currentTarget as HTMLInputElement).value;
    const { [name]: _, ...others } = filter;
    onChange(text ? { ...others, [name]: Number(text) } : others);
  };
  const years = { from, to };
  const setGenre = (genre: string) => {
    const kept = Object.fromEntries(Object.entries(years).filter(([, year]) => year !== undefined));
    onChange({ ...rest, ...kept, ...(genre ? { genre } : {}) });
  };
  const [least, most] = device.years ?? [];
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label="Filters">
      {device.genres.length > 0 && (
        <label>
          Genre
          <select value={filter.genre ?? ""} onChange={(event) => setGenre(event.currentTarget.value)}>
            <option value="">All</option>
            {device.genres.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      )}
      {device.years && (
        <>
          <label>
            From year
            <input type="number" min={least} max={most} placeholder={`${least}`} defaultValue={from ?? ""} onChange={set("from")} />
          </label>
          <label>
            To year
            <input type="number" min={least} max={most} placeholder={`${most}`} defaultValue={to ?? ""} onChange={set("to")} />
          </label>
        </>
      )}
      {listed > 0 && (
        <label class="check">
          <input
            type="checkbox"
            checked={filter.listed ?? false}
            onChange={(event) => onChange({ ...filter, listed: event.currentTarget.checked })}
          />
          Only from my list or library ({listed.toLocaleString("en")})
        </label>
      )}
    </form>
  );
}

function Film(props: {
  device: Device;
  recommendation: Recommendation;
  onLiked: () => void;
  onSeen: () => void;
  onHide: () => void;
}) {
  const { device, recommendation, onLiked, onSeen, onHide } = props;
  const { item, score, reasons, popular } = recommendation;
  const [similar, setSimilar] = useState<Item[] | null>(null);
  const toggle = () => (similar ? setSimilar(null) : void device.similar(item.id, SIMILAR).then(setSimilar));
  const button = (name: string, action: () => void, expanded?: boolean) => (
    <button type="button" onClick={action} aria-expanded={expanded}>
      {name}
      <span class="hidden"> {item.title}</span>
    </button>
  );
  return (
    <li class="film">
      <h2>
        <Title item={item} />
      </h2>
      {item.genres.length > 0 && <p class="genres">{item.genres.join(" · ")}</p>}
      {reasons && <Because reasons={reasons} popular={popular} />}
      <div class="buttons">
        {button("Seen and liked", onLiked)}
        {button("Seen", onSeen)}
        {button("Hide", onHide)}
        {button("Similar", toggle, similar !== null)}
      </div>
      {similar && (
        <ul class="similar" aria-label={`Similar to ${item.title}`}>
          {similar.map((each) => (
            <li key={each.id}>
              <Title item={each} />
            </li>
          ))}
          {!similar.length && <li>The model knows none.</li>}
        </ul>
      )}
      {reasons && <Sum score={score} reasons={reasons} popular={popular} of={item.title} />}
    </li>
  );
}

/** The parts of a score. */
function Sum(props: { score: number; reasons: Reason[]; popular: number; of: string }) {
  const { score, reasons, popular } = props;
  const rest = score - popular - reasons.reduce((sum, each) => sum + each.part, 0);
  return (
    <details>
      <summary>
        Score {score.toFixed(3)}
        <span class="hidden"> of {props.of}</span>
      </summary>
      <dl>
        {reasons.map((each) => (
          <Part key={each.item.id} name={each.item.title} value={each.part} />
        ))}
        {popular !== 0 && <Part name="popular with everybody" value={popular} />}
        <Part name="all other films of your history" value={rest} />
      </dl>
    </details>
  );
}

function Part({ name, value }: { name: string; value: number }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{`${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`}</dd>
    </>
  );
}

/** The films that raised the score most. Films that lowered it are no reasons. */
function Because({ reasons, popular }: { reasons: Reason[]; popular: number }) {
  if (!reasons.length) {
    const why = popular > 0 ? "popular with everybody" : `no single film speaks for it`;
    return <p class="because">{why}</p>;
  }
  return (
    <p class="because">
      because of{" "}
      {reasons.map(({ item }, place) => (
        <span key={item.id}>
          {place > 0 && (place === reasons.length - 1 ? " and " : ", ")}
          <cite>
            <Title item={item} />
          </cite>
        </span>
      ))}
    </p>
  );
}

