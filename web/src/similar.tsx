/** What is like one title; each of them leads on to what is like it. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Cover } from "./cover";
import type { Device, Item } from "./device";
import { t } from "./language";
import { Button, nameOf, Title } from "./parts";

const SHOWN = 12;

export function Similar({ device, item, onClose }: { device: Device; item: Item; onClose: () => void }) {
  const [of, setOf] = useState(item);
  const [found, setFound] = useState<Item[] | null>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    dialog.current?.scrollTo(0, 0);
    void device.similar(of.id, SHOWN).then(setFound);
  }, [of]);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="similar-title">
      <div class="top">
        <h2 id="similar-title">{t("similarTo", { title: nameOf(of) })}</h2>
        <Button of="close" onClick={() => dialog.current?.close()} />
      </div>
      <ul class="thumbs">
        {found?.map((each) => (
          <li key={each.id}>
            <button type="button" onClick={() => setOf(each)}>
              <Cover item={each} />
              <span>
                <Title item={each} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {found?.length === 0 && <p>{t("noneSimilar")}</p>}
    </dialog>
  );
}
