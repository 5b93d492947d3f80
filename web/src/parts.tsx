/** Small parts that several screens use. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { Device, Item } from "./device";
import { PageError } from "./errors";
import { type Key, t, template, translated, type Values } from "./language";
import { natural } from "./text";

/** A title as it is spoken, with its year set apart. */
export function Title({ item }: { item: Item }) {
  const [name, year] = natural(item);
  return (
    <>
      {name}
      {year !== null && <span class="year"> {year}</span>}
    </>
  );
}

export function nameOf(item: Item): string {
  return natural(item)[0];
}

/** A string with elements in its places. */
export function Text({ of, n, ...parts }: { of: Key; n?: number } & Record<string, ComponentChildren>) {
  const pieces = template(of, n === undefined ? {} : { n }).split(/\{(\w+)\}/);
  return <>{pieces.map((piece, at) => (at % 2 ? (piece === "n" ? n?.toLocaleString() : parts[piece]) : piece))}</>;
}

/** What an action did or why it failed, read out by screen readers. */
export function Said({ children }: { children?: ComponentChildren }) {
  return (
    <div class="said" role="status">
      {children}
    </div>
  );
}

export function Failed({ error, again }: { error: unknown; again?: () => void }) {
  if (!error) return null;
  const [message, hint] =
    error instanceof PageError ? [error.message, error.hint] : [t("unexpected", { what: error instanceof Error ? error.message : String(error) }), t("reload")];
  return (
    <div class="failed" role="alert">
      <p>{sentence(translated(message))}</p>
      <p>{t("next", { what: translated(hint).replace(/\.$/, "") })}</p>
      {again && <Button of="tryAgain" onClick={again} />}
    </div>
  );
}

/** With a capital letter and a full stop; names of files stay as they are. */
function sentence(text: string): string {
  const first = /^\S*\./.test(text) ? text.charAt(0) : text.charAt(0).toUpperCase();
  return first + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** A button; `about` completes its name for screen readers. */
export function Button(props: {
  of: Key;
  values?: Values;
  about?: string;
  onClick: () => void;
  class?: string;
  expanded?: boolean;
  pressed?: boolean;
}) {
  return (
    <button type="button" class={props.class} onClick={props.onClick} aria-expanded={props.expanded} aria-pressed={props.pressed}>
      {t(props.of, props.values)}
      {props.about && <span class="hidden"> {props.about}</span>}
    </button>
  );
}

/** A button that lets a file be chosen. */
export function FileButton(props: { of: Key; accept?: string; onFile: (file: File) => void }) {
  return (
    <label class="file">
      {t(props.of)}
      <input
        type="file"
        accept={props.accept}
        onChange={(event) => {
          const file = event.currentTarget.files?.[0];
          if (file) props.onFile(file);
          event.currentTarget.value = "";
        }}
      />
    </label>
  );
}

/** Lets files be dropped on an element. */
export function useDrop(onFile: (file: File) => void) {
  const [over, setOver] = useState(false);
  return {
    class: over ? "drop over" : "drop",
    onDragOver: (event: DragEvent) => {
      event.preventDefault();
      setOver(true);
    },
    onDragLeave: () => setOver(false),
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      const file = event.dataTransfer?.files[0];
      if (file) onFile(file);
    },
  };
}

/** A field to type a title into, and what of the catalogue it may be. */
export function TitleSearch(props: { device: Device; of: Key; action: Key; onChoose: (item: Item) => void }) {
  const { device, of, onChoose, action } = props;
  const [text, setText] = useState("");
  const [found, setFound] = useState<Item[] | null>(null);
  const id = useId();
  useEffect(() => {
    let current = true;
    void device.search(text).then((items) => current && setFound(text.trim() ? items : null));
    return () => {
      current = false;
    };
  }, [text]);
  const choose = (item: Item) => {
    setText("");
    onChoose(item);
    document.getElementById(id)?.focus();
  };
  return (
    <div class="search">
      <label for={id}>{t(of)}</label>
      <input id={id} type="search" value={text} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)} />
      {found && text.trim() !== "" && (
        <ul class="rows" aria-label={t("titlesThatMatch")}>
          {found.map((item) => (
            <li key={item.id}>
              <span>
                <Title item={item} />
              </span>
              <Button of={action} about={nameOf(item)} onClick={() => choose(item)} />
            </li>
          ))}
          {!found.length && <li>{t("noTitleMatches")}</li>}
        </ul>
      )}
    </div>
  );
}

/** Empty cards, until there are some. */
export function Waiting() {
  return (
    <>
      <p class="hidden" role="status">
        {t("looking")}
      </p>
      <ul class="films waiting" aria-hidden="true">
        {Array.from({ length: 8 }, (_, at) => (
          <li key={at} class="film" />
        ))}
      </ul>
    </>
  );
}
