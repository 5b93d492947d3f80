/** What left this device: every message in plain words, federations and what they cost, and what the owner allows. */

import { useEffect, useState } from "preact/hooks";
import type { Federation, Folder, Left, Limit, Sent, Standing } from "./device";
import { bytes, day, type Key, number, t, translated } from "./language";
import { Button, Failed, Said } from "./parts";
import { TakePart } from "./take_part";

const FIRST = 10; // messages that are shown at once
const MORE = 50;

export function LeftFolder({ folder }: { folder: Folder }) {
  const [left, setLeft] = useState<Left | null>(null);
  const [shown, setShown] = useState(FIRST);
  const [error, setError] = useState<unknown>(null);
  const [said, setSaid] = useState("");
  const look = () => void folder.left().then(setLeft, setError);
  useEffect(look, []);
  const act = async (done: Key, change: Promise<Left>) => {
    setError(null);
    try {
      setLeft(await change);
      setSaid(t(done));
    } catch (thrown) {
      setError(thrown);
    }
  };
  if (!left) {
    return (
      <>
        <h1>{t("whatLeft")}</h1>
        {error ? <Failed error={error} /> : <p role="status">{t("looking")}</p>}
      </>
    );
  }
  const messages = [...left.sent].reverse();
  const total = left.sent.reduce((sum, each) => sum + each.bytes, 0);
  return (
    <>
      <h1>{t("whatLeft")}</h1>
      <p class="nothing">
        <strong>{messages.length ? t("messages", { n: messages.length }) : t("nothing")}</strong>{" "}
        {messages.length ? t("inBytes", { bytes: bytes(total) }) : t("nothingIsSent")}
      </p>
      <Said>{said}</Said>
      <Failed error={error} />
      {messages.length > 0 && (
        <section aria-labelledby="sent-title">
          <h2 id="sent-title">{t("everyMessage")}</h2>
          <ol class="sent" reversed>
            {messages.slice(0, shown).map((each, place) => (
              <Message key={messages.length - place} sent={each} />
            ))}
          </ol>
          {messages.length > shown && <Button of="showMore" onClick={() => setShown(shown + MORE)} />}
        </section>
      )}
      <TakePart part={folder.part} onNews={look} />
      {left.federations.length > 0 && (
        <section aria-labelledby="federations-title">
          <h2 id="federations-title">{t("federations")}</h2>
          <ul class="sent">
            {left.federations.map((each) => (
              <FederationRow key={each.id} federation={each} decide={(done, to) => void act(done, folder.decide(each.id, to))} />
            ))}
          </ul>
        </section>
      )}
      <Limits limits={left.policy} onSave={(change) => void act("limitsChanged", folder.setPolicy(change))} />
    </>
  );
}

function FederationRow({ federation, decide }: { federation: Federation; decide: (done: Key, to: Standing) => void }) {
  const { id, standing, offer, uploads, epsilon, delta } = federation;
  const name = id.slice(0, 12);
  const offers = [
    t(offer.masked ? "offersSums" : "offersPlain"),
    t(offer.noise ? "offersNoise" : "offersNoNoise"),
    ...(offer.rounds ? [t("rounds", { n: offer.rounds })] : []),
  ];
  return (
    <li>
      <p>
        <code>{name}</code> · {t(`standing_${standing}`)}
      </p>
      <p class="hint">{[t("uploads", { n: uploads }), ...offers].join(" · ")}</p>
      <details>
        <summary>
          {t("advanced")} <span class="hidden">{name}</span>
        </summary>
        <p class="hint">
          {epsilon === null ? t("noEpsilon") : t("spent", { epsilon: number(epsilon), delta: `${delta}` })}
          {offer.noise ? ` ${t("noiseOf", { noise: offer.noise })}` : ""}
        </p>
      </details>
      <div class="buttons">
        {standing !== "joined" && <Button of={standing === "paused" ? "goOn" : "takePart"} about={name} onClick={() => decide("standing_joined", "joined")} />}
        {standing === "joined" && <Button of="pause" about={name} onClick={() => decide("standing_paused", "paused")} />}
        {standing !== "left" && <Button of="leave" about={name} class="quiet" onClick={() => decide("hasLeft", "left")} />}
      </div>
    </li>
  );
}

function Message({ sent }: { sent: Sent }) {
  const facts = [day(sent.time, true), ...(sent.round >= 0 ? [t("round", { round: sent.round + 1 })] : []), bytes(sent.bytes)];
  return (
    <li>
      <p>{t("itTold", { what: translated(sent.told) })}</p>
      <p class="hint">{facts.join(" · ")}</p>
      {sent.people !== null && <p class="hint">{t("atLeastPeople", { n: sent.people })}</p>}
      <details>
        <summary>
          {t("advanced")} <span class="hidden">{facts.join(", ")}</span>
        </summary>
        {sent.protection && <p class="hint">{t("protection", { how: sent.protection.split(", ").map(translated).join(", ") })}</p>}
        <pre tabIndex={0}>{JSON.stringify(sent, null, 2)}</pre>
      </details>
    </li>
  );
}

const PLAIN = ["allow_plain", "least_users", "least_nodes", "rounds_per_day"]; // limits that need no formula

/** What the owner allows, whatever a server asks for. */
function Limits({ limits, onSave }: { limits: Limit[]; onSave: (change: Record<string, number | boolean | null>) => void }) {
  const [changed, setChanged] = useState<Record<string, number | boolean | null>>({});
  const field = ({ name, value, default: usual }: Limit) => {
    const set = (to: number | boolean | null) => setChanged({ ...changed, [name]: to });
    const now = name in changed ? changed[name]! : value;
    return (
      <label key={name} class={typeof usual === "boolean" ? "check" : ""}>
        {typeof usual === "boolean" ? (
          <input type="checkbox" checked={now === true} onChange={(event) => set(event.currentTarget.checked)} />
        ) : (
          <input
            type="number"
            step="any"
            min="0"
            placeholder={usual === null ? t("noLimit") : `${usual}`}
            value={now === null ? "" : Number(now)}
            onInput={(event) => set(event.currentTarget.value === "" ? usual : Number(event.currentTarget.value))}
          />
        )}
        <span>{t(`limit_${name}` as Key)}</span>
      </label>
    );
  };
  const plain = PLAIN.flatMap((name) => limits.find((each) => each.name === name) ?? []);
  const save = (event: Event) => {
    event.preventDefault();
    onSave(changed);
    setChanged({});
  };
  return (
    <section aria-labelledby="limits-title">
      <h2 id="limits-title">{t("whatIsAllowed")}</h2>
      <p>{t("limitsHold")}</p>
      <form class="limits" onSubmit={save}>
        {plain.map(field)}
        <details>
          <summary>{t("advanced")}</summary>
          <p class="hint">{t("epsilonMeans")}</p>
          {limits.filter((each) => !plain.includes(each)).map(field)}
        </details>
        <button type="submit" class="main" disabled={!Object.keys(changed).length}>
          {t("saveLimits")}
        </button>
      </form>
    </section>
  );
}
