/** For you: what the model recommends from the history, with its reasons. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Card } from "./card";
import type { Device, Item, Recommendation, Report } from "./device";
import { ImportBox, Outcome } from "./import_box";
import { Keeping } from "./keeping";
import { t } from "./language";
import { Button, Failed, nameOf, Said, TitleSearch, Waiting } from "./parts";
import { Similar } from "./similar";
import { Tools, type Wish } from "./tools";
import { CANDIDATES, varied } from "./variety";

const STEP = 24;
const MOST = 500; // that a device gives at once

const PLAIN: Wish = { filter: {}, variety: 0, count: STEP };
const now = () => Math.floor(Date.now() / 1000);

export function ForYou({ device, onKeep }: { device: Device; onKeep: () => void }) {
  const [wish, setWish] = useState(PLAIN);
  const [found, setFound] = useState<Recommendation[] | null>(null);
  const [people, setPeople] = useState<string[]>([]);
  const [titles, setTitles] = useState({ all: 0, counting: 0 });
  const [report, setReport] = useState<Report | null>(null);
  const [said, setSaid] = useState<{ text: string; undo?: () => Promise<void> } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [similar, setSimilar] = useState<Item | null>(null);
  const list = useRef<HTMLOListElement>(null);
  const latest = useRef(wish); // an answer that comes late must not replace a newer one
  latest.current = wish;

  const refresh = async () => {
    setError(null);
    try {
      const history = await device.history();
      const { filter, variety, count } = wish;
      const all = await device.recommend(filter, variety ? Math.min(Math.max(CANDIDATES, count), MOST) : count);
      if (wish !== latest.current) return;
      const distinct = (entries: typeof history) => new Set(entries.map(({ item }) => item)).size;
      setTitles({ all: distinct(history), counting: distinct(history.filter(({ counts }) => counts)) });
      setPeople(filter.along ?? []); // with their list, not before it
      setFound(varied(all, variety, count));
    } catch (thrown) {
      setError(thrown);
      setFound([]);
    }
  };
  useEffect(() => void refresh(), [wish]);

  /** Change something about a card, and go on at the card that takes its place. */
  const act = async (item: Item, text: string, change: Promise<unknown>, undo?: () => Promise<unknown>) => {
    const place = (found ?? []).findIndex((each) => each.item.id === item.id);
    await change;
    await refresh();
    setSaid({ text, ...(undo ? { undo: () => undo().then(refresh) } : {}) });
    requestAnimationFrame(() => list.current?.children[Math.max(place, 0)]?.querySelector<HTMLElement>(".main")?.focus());
  };
  const seen = (item: Item, liked: boolean) =>
    act(item, t(liked ? "isLiked" : "isSeen", { title: nameOf(item) }), device.add(item.id, now(), liked));
  const choose = (item: Item, choice: "hidden" | "disliked") =>
    act(item, t(choice === "hidden" ? "isHidden" : "isDisliked", { title: nameOf(item) }), device.choose(item.id, { [choice]: true }), () =>
      device.choose(item.id, { [choice]: false }),
    );

  if (found === null) {
    return (
      <>
        <h1>{t("forYou")}</h1>
        <Waiting />
      </>
    );
  }
  const begin = (made: Report | null) => {
    setReport(made);
    void refresh();
  };
  if (!titles.counting && !error) return <Welcome device={device} seenOnly={titles.all} onBegin={begin} onKeep={onKeep} />;
  const lead = { n: titles.counting };
  return (
    <>
      <h1>{t("forYou")}</h1>
      <p class="lead">
        {t("fromTitles", lead)} <a href="#left">{t(device.folder ? "staysOnComputer" : "staysInBrowser")}</a>
      </p>
      {report && <Outcome device={device} report={report} onChange={() => void refresh()} />}
      <Tools device={device} wish={wish} onChange={(change) => setWish({ ...wish, count: STEP, ...change })} />
      <Failed error={error} again={() => void refresh()} />
      <Said>
        {said && (
          <p>
            {said.text} {said.undo && <Button of="undo" onClick={() => void said.undo!().then(() => setSaid(null))} />}
          </p>
        )}
      </Said>
      <ol class="films" ref={list}>
        {found.map((each) => (
          <Card
            key={each.item.id}
            found={each}
            people={people}
            onSeen={(liked) => void seen(each.item, liked)}
            onDislike={() => void choose(each.item, "disliked")}
            onHide={() => void choose(each.item, "hidden")}
            onSimilar={() => setSimilar(each.item)}
          />
        ))}
      </ol>
      {!found.length && !error && (
        <div class="empty">
          <p>{t("nothingPasses")}</p>
          <Button of="clearFilters" class="main" onClick={() => setWish(PLAIN)} />
        </div>
      )}
      {found.length === wish.count && wish.count < MOST && <Button of="showMore" onClick={() => setWish({ ...wish, count: wish.count + STEP })} />}
      {similar && <Similar device={device} item={similar} onClose={() => setSimilar(null)} />}
    </>
  );
}

/** What somebody sees who has no history yet, or one of which nothing counts. */
function Welcome(props: { device: Device; seenOnly: number; onBegin: (report: Report | null) => void; onKeep: () => void }) {
  const { device, seenOnly, onBegin, onKeep } = props;
  const [named, setNamed] = useState<Item[]>([]);
  const add = async (item: Item) => {
    await device.add(item.id, now(), true);
    setNamed([...named.filter(({ id }) => id !== item.id), item]);
  };
  return (
    <div class="welcome">
      <h1>{t("whatHaveYouSeen")}</h1>
      <p class="lead">{t(device.folder ? "welcomeFolder" : "welcomeBrowser")}</p>
      {seenOnly > 0 && <p class="note">{t("nothingCounts", { n: seenOnly })}</p>}
      <ImportBox device={device} onDone={onBegin} />
      <section aria-labelledby="name-title">
        <h2 id="name-title">{t("orNameSome")}</h2>
        <TitleSearch device={device} of="titleYouLike" action="add" onChoose={(item) => void add(item)} />
        {named.length > 0 && (
          <>
            <ul class="named">
              {named.map((item) => (
                <li key={item.id}>{nameOf(item)}</li>
              ))}
            </ul>
            <Button of="showRecommendations" class="main" onClick={() => onBegin(null)} />
          </>
        )}
      </section>
      <Keeping device={device} onKeep={onKeep} />
    </div>
  );
}
