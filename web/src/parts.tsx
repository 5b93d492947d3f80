/** Small parts that several screens use. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { Device, Item } from "./device";
import { PageError } from "./errors";
import { splitYear } from "./text";

/** A film's title with its year set apart. */
export function Title({ item }: { item: Item }) {
  const [name, year] = splitYear(item.title);
  const shown = item.year ?? year;
  return (
    <>
      {name} {shown !== null && <span class="year">{shown}</span>}
    </>
  );
}

/** What an action did or why it failed, read out by screen readers. */
export function Said({ children }: { children: ComponentChildren }) {
  return (
    <div class="said" role="status">
      {children}
    </div>
  );
}

export function Failed({ error }: { error: unknown }) {
  if (!error) return null;
  const hint = error instanceof PageError ? error.hint : "Reload the page.";
  return (
    <div class="failed" role="alert">
      <p>{error instanceof Error ? error.message : String(error)}</p>
      <p>Next: {hint.replace(/\.$/, "")}.</p>
    </div>
  );
}

/** A field to type a title into, and the films of the catalogue that it may be. */
export function FilmSearch(props: { device: Device; label: string; onChoose: (item: Item) => void; action: string }) {
  const { device, label, onChoose, action } = props;
  const [text, setText] = useState("");
  const [found, setFound] = useState<Item[]>([]);
  const id = useId();
  useEffect(() => {
    let current = true;
    void device.search(text).then((items) => current && setFound(items));
    return () => {
      current = false;
    };
  }, [text]);
  const choose = (item: Item) => {
    setText("");
    onChoose(item);
  };
  return (
    <div class="search">
      <label for={id}>{label}</label>
      <input id={id} type="search" value={text} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)} />
      {text.trim() !== "" && (
        <ul class="found" aria-label="Films that match">
          {found.map((item) => (
            <li key={item.id}>
              <Title item={item} />
              <button type="button" onClick={() => choose(item)}>
                {action}
                <span class="hidden"> {item.title}</span>
              </button>
            </li>
          ))}
          {!found.length && <li>No film of the catalogue has this in its title.</li>}
        </ul>
      )}
    </div>
  );
}

export function counted(count: number, one: string, many: string): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
