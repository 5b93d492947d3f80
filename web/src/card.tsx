/** One recommendation: a cover, why it is there, one main action, and the others folded. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Cover } from "./cover";
import type { Because, Recommendation } from "./device";
import { number, percent, t } from "./language";
import { Button, nameOf, Text, Title } from "./parts";

const MOSTLY = 0.5; // share from which one title is most of the reason

export function Card(props: {
  found: Recommendation;
  people: string[];
  onSeen: (liked: boolean) => void;
  onDislike: () => void;
  onHide: () => void;
  onSimilar: () => void;
}) {
  const { found, people, onSeen, onDislike, onHide, onSimilar } = props;
  const { item, because, theirs, listed } = found;
  const [asking, setAsking] = useState(false);
  const name = nameOf(item);
  const answers = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (asking) answers.current?.querySelector("button")?.focus();
  }, [asking]);
  return (
    <li class="film">
      <div class="front">
        <Cover item={item} />
        {item.genres.length > 0 && <p class="genres">{item.genres.slice(0, 3).join(" · ")}</p>}
        <h2>
          <Title item={item} />
        </h2>
      </div>
      <div class="body">
        {listed && <p class="mine">{t("inYourLibrary")}</p>}
        {because && <Why because={because} found={found} {...(people.length ? { person: t("you") } : {})} />}
        {theirs.map((each, at) => (
          <Why key={people[at]} because={each} found={found} person={people[at]!} />
        ))}
        {asking ? (
          <div class="actions" role="group" aria-label={t("didYouLike", { title: name })} ref={answers}>
            <span>{t("didYouLikeIt")}</span>
            <Button of="yes" class="main" about={name} onClick={() => onSeen(true)} />
            <Button of="no" class="main" about={name} onClick={() => onSeen(false)} />
            <Button of="cancel" about={name} onClick={() => setAsking(false)} />
          </div>
        ) : (
          <div class="actions">
            <Button of="iKnowIt" class="main" about={name} onClick={() => setAsking(true)} />
            <More name={name} onDislike={onDislike} onHide={onHide} onSimilar={onSimilar} />
          </div>
        )}
      </div>
    </li>
  );
}

/** The actions that are needed less often. */
function More(props: { name: string; onDislike: () => void; onHide: () => void; onSimilar: () => void }) {
  const { name, onDislike, onHide, onSimilar } = props;
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  const then = (action: () => void) => () => {
    close();
    action();
  };
  return (
    <details
      class="more"
      ref={menu}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        close();
        menu.current?.querySelector("summary")?.focus();
      }}
      onFocusOut={(event) => {
        if (event.relatedTarget instanceof Node && !menu.current?.contains(event.relatedTarget)) close();
      }}
    >
      <summary>
        <span class="hidden">{t("moreAbout", { title: name })}</span>
      </summary>
      <div class="menu">
        <Button of="similar" about={name} onClick={then(onSimilar)} />
        <Button of="notForMe" about={name} onClick={then(onDislike)} />
        <Button of="hide" about={name} onClick={then(onHide)} />
      </div>
    </details>
  );
}

/** Titles that raised the score, with their share of all that raised it. Those that lowered it are no reasons. */
function Why({ because, found, person }: { because: Because; found: Recommendation; person?: string }) {
  const { reasons, raised, popular } = because;
  const shares = reasons.map(({ item, part }) => ({ name: nameOf(item), share: part / raised }));
  if (popular > 0) shares.push({ name: t("popularity"), share: popular / raised });
  shares.sort((a, b) => b.share - a.share);
  const rest = 1 - shares.reduce((sum, { share }) => sum + share, 0);
  const [first, second] = shares;
  const who = person && <span class="who">{person}: </span>;
  if (!first) {
    return (
      <p class="because">
        {who}
        {t("noSingleTitle")}
      </p>
    );
  }
  return (
    <details class="because">
      <summary>
        {who}
        {first.share >= MOSTLY || !second ? (
          <Text of="mostlyBecauseOf" title={<b>{first.name}</b>} />
        ) : (
          <Text of="becauseOf" first={<b>{first.name}</b>} second={<b>{second.name}</b>} />
        )}
        {!person && <span class="hidden"> ({nameOf(found.item)})</span>}
      </summary>
      <ul class="shares">
        {shares.map(({ name, share }) => (
          <Share key={name} name={name} share={share} />
        ))}
        {rest > 0.005 && <Share name={t("otherTitles")} share={rest} />}
      </ul>
      {!person && <p class="hint">{t("score", { score: number(found.score) })}</p>}
    </details>
  );
}

function Share({ name, share }: { name: string; share: number }) {
  return (
    <li>
      <span>{name}</span> <span class="percent">{percent(share)}</span>
      <span class="bar" style={{ "--share": `${share}` }} />
    </li>
  );
}
