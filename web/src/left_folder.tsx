/** What left this device: every message in plain words, federations and what they cost, and what the owner allows. */

import { useEffect, useState } from "preact/hooks";
import { dateOf } from "./browser_device";
import type { Federation, Folder, Left, Limit, Sent } from "./device";
import { counted, Failed, Said } from "./parts";
import { TakePart } from "./take_part";

const FIRST = 10; // messages that are shown at once
const MORE = 50;
const STANDINGS = {
  asked: "It asks you to take part. Nothing is sent before you agree.",
  joined: "You take part.",
  paused: "You have paused. Nothing is sent.",
  left: "You have left. Nothing is sent.",
};

export function LeftFolder({ folder }: { folder: Folder }) {
  const [left, setLeft] = useState<Left | null>(null);
  const [shown, setShown] = useState(FIRST);
  const [error, setError] = useState<unknown>(null);
  const [said, setSaid] = useState("");
  useEffect(() => void folder.left().then(setLeft), []);
  const act = async (text: string, change: Promise<Left>) => {
    setError(null);
    try {
      setLeft(await change);
      setSaid(text);
    } catch (thrown) {
      setError(thrown);
    }
  };
  if (!left) return null;
  const messages = [...left.sent].reverse();
  const bytes = left.sent.reduce((sum, each) => sum + each.bytes, 0);
  return (
    <>
      <h1>What left this device</h1>
      <p class="nothing">
        {messages.length ? (
          <>
            <strong>{counted(messages.length, "message", "messages")}</strong>, {bytes.toLocaleString("en")} bytes.
          </>
        ) : (
          <>
            <strong>Nothing.</strong> Nothing is sent unless you take part in a federation.
          </>
        )}
      </p>
      <Said>{said}</Said>
      <Failed error={error} />
      {messages.length > 0 && (
        <section aria-labelledby="sent-title">
          <h2 id="sent-title">Every message, newest first</h2>
          <ol class="sent" reversed>
            {messages.slice(0, shown).map((each, place) => (
              <Message key={messages.length - place} sent={each} />
            ))}
          </ol>
          {messages.length > shown && (
            <button type="button" onClick={() => setShown(shown + MORE)}>
              Show more
            </button>
          )}
        </section>
      )}
      <TakePart part={folder.part} onNews={() => void folder.left().then(setLeft)} />
      {left.federations.length > 0 && (
        <section aria-labelledby="federations-title">
          <h2 id="federations-title">Federations</h2>
          <ul class="federations">
            {left.federations.map((each) => (
              <FederationRow key={each.id} federation={each} folder={folder} act={act} />
            ))}
          </ul>
        </section>
      )}
      <Limits limits={left.policy} onSave={(change) => void act("The limits are changed.", folder.setPolicy(change))} />
    </>
  );
}

function FederationRow(props: { federation: Federation; folder: Folder; act: (text: string, change: Promise<Left>) => Promise<void> }) {
  const { federation, folder, act } = props;
  const { id, standing, offer, uploads, epsilon, delta } = federation;
  const name = id.slice(0, 12);
  const offers = [
    offer.masked ? "uploads are hidden in sums" : "the server can read uploads",
    offer.noise ? `noise of ${offer.noise} clips` : "no noise",
    ...(offer.rounds ? [counted(offer.rounds, "round", "rounds")] : []),
  ];
  const cost = epsilon === null ? "no ε: something left without noise" : `ε = ${epsilon.toPrecision(3)} (δ = ${delta})`;
  const button = (text: string, to: "joined" | "paused" | "left", done: string) => (
    <button type="button" onClick={() => void act(done, folder.decide(id, to))}>
      {text}
      <span class="hidden"> {name}</span>
    </button>
  );
  return (
    <li>
      <p>
        <code>{name}</code> · {STANDINGS[standing]}
      </p>
      <p class="hint">Offers: {offers.join(", ")}</p>
      <p class="hint">
        {counted(uploads, "upload", "uploads")} · spent: {cost}
      </p>
      <div class="buttons">
        {standing !== "joined" && button(standing === "paused" ? "Go on" : "Take part", "joined", "You take part.")}
        {standing === "joined" && button("Pause", "paused", "Paused. Nothing is sent until you go on.")}
        {standing !== "left" && button("Leave", "left", "You have left. What was sent before cannot be called back.")}
      </div>
    </li>
  );
}

function Message({ sent }: { sent: Sent }) {
  const { time, round, bytes, told, people, protection } = sent;
  const facts = [
    dateOf(time).replace("T", " ").replace("Z", " UTC"),
    ...(round >= 0 ? [`round ${round + 1}`] : []),
    counted(bytes, "byte", "bytes"),
  ];
  return (
    <li>
      <p>It told the server {told}.</p>
      <p class="hint">{facts.join(" · ")}</p>
      {people !== null && <p class="hint">Cohort: at least {counted(people, "person", "people")}</p>}
      {protection && <p class="hint">Protection: {protection}</p>}
      <details>
        <summary>
          Raw record<span class="hidden"> of {facts.join(", ")}</span>
        </summary>
        <pre tabIndex={0}>{JSON.stringify(sent, null, 2)}</pre>
      </details>
    </li>
  );
}

/** What the owner allows, whatever a server asks for. */
function Limits({ limits, onSave }: { limits: Limit[]; onSave: (change: Record<string, number | boolean | null>) => void }) {
  const [changed, setChanged] = useState<Record<string, number | boolean | null>>({});
  const set = (name: string, value: number | boolean | null) => setChanged({ ...changed, [name]: value });
  const save = (event: Event) => {
    event.preventDefault();
    onSave(changed);
    setChanged({});
  };
  return (
    <section aria-labelledby="limits-title">
      <h2 id="limits-title">What this device allows</h2>
      <p>These limits hold whatever a server asks for.</p>
      <form onSubmit={save}>
        <fieldset class="limits">
          <legend>Limits</legend>
          {limits.map(({ name, value, about, default: usual }) => {
            const now = name in changed ? changed[name]! : value;
            return (
              <label key={name}>
                {about}
                {typeof usual === "boolean" ? (
                  <input type="checkbox" checked={now === true} onChange={(event) => set(name, event.currentTarget.checked)} />
                ) : (
                  <input
                    type="number"
                    step="any"
                    min="0"
                    placeholder={usual === null ? "no limit" : `${usual}`}
                    value={now === null ? "" : Number(now)}
                    onInput={(event) => set(name, event.currentTarget.value === "" ? usual : Number(event.currentTarget.value))}
                  />
                )}
              </label>
            );
          })}
        </fieldset>
        <button type="submit" disabled={!Object.keys(changed).length}>
          Save the limits
        </button>
      </form>
    </section>
  );
}
