/** Take part: read an invitation before agreeing, follow what the device does, pause and leave. */

import { useEffect, useId, useState } from "preact/hooks";
import { PageError } from "./errors";
import { day, type Key, t, translated } from "./language";
import type { Asked, Change, Part, PartState, Taking } from "./part";
import { Button, Failed, FileButton, Said, Text, useDrop } from "./parts";

const LOOK = 2000; // milliseconds between two looks at the node
const LONGEST = 1_000_000; // bytes of a file

type Act = (done: Key | null, change: Promise<PartState>) => Promise<void>;

/** `onNews` is called when a message has left the device. */
export function TakePart({ part, onNews }: { part: Part; onNews: () => void }) {
  const [state, setState] = useState<PartState | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [said, setSaid] = useState("");
  const messages = state?.accepted ? state.messages : 0;
  useEffect(() => {
    if (messages) onNews();
  }, [messages]);
  useEffect(() => {
    let timer = 0;
    let open = true;
    const look = async () => {
      if (!document.hidden) {
        const found = await part.state().catch(setError);
        if (open && found) setState(found);
      }
      if (open) timer = window.setTimeout(() => void look(), LOOK);
    };
    void look();
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, []);
  const act: Act = async (done, change) => {
    setError(null);
    setSaid("");
    try {
      setState(await change);
      setSaid(done ? t(done) : "");
      onNews();
    } catch (thrown) {
      setError(thrown);
    }
  };
  if (!state) return <Failed error={error} />;
  return (
    <section class="part" aria-labelledby="part-title">
      <h2 id="part-title">{t("takePart")}</h2>
      {state.missing ? (
        <p class="note">
          {translated(state.missing.error)}: <code>{state.missing.next}</code>
        </p>
      ) : state.accepted ? (
        <Running taking={state as Taking} part={part} act={act} />
      ) : (
        <Invited part={part} act={act} />
      )}
      <Said>{said}</Said>
      <Failed error={error} />
    </section>
  );
}

/** Paste or drop an invitation, read what it asks for, agree or not. */
function Invited({ part, act }: { part: Part; act: Act }) {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState<Asked | null>(null);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const read = async (given: string) => {
    setError(null);
    setAsked(null);
    try {
      setAsked(await part.read(given));
    } catch (thrown) {
      setError(thrown);
    }
  };
  const take = async (file: File) => {
    if (file.size > LONGEST) {
      setError(new PageError(t("invitationTooLarge", { file: file.name }), t("chooseSentFile")));
      return;
    }
    const given = await file.text();
    setText(given);
    await read(given);
  };
  const forget = () => {
    setText("");
    setAsked(null);
  };
  return (
    <>
      <p>{t("federationIs")}</p>
      <form
        {...useDrop((file) => void take(file))}
        onSubmit={(event) => {
          event.preventDefault();
          void read(text);
        }}
      >
        <label for={id}>{t("invitationLink")}</label>
        <textarea
          id={id}
          rows={3}
          spellcheck={false}
          autocomplete="off"
          placeholder="solera-invitation:…"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAsked(null);
          }}
        />
        <p class="hint">{t("invitationHow")}</p>
        <div class="buttons">
          <button type="submit" class="main" disabled={!text.trim()}>
            {t("readInvitation")}
          </button>
          <FileButton of="chooseFile" onFile={(file) => void take(file)} />
        </div>
      </form>
      <Failed error={error} />
      <div role="status">
        {asked && (
          <div class="panel asked">
            <h3>{t("asksYou", { federation: asked.federation })}</h3>
            <Terms asked={asked} />
            <p>
              <Text of="whatHolds" server={asked.server} command={<code>solera device open</code>} />
            </p>
            <div class="buttons">
              <Button of="agree" class="main" onClick={() => void act("youHaveAgreed", part.agree(text))} />
              <Button of="doNotTakePart" onClick={forget} />
            </div>
          </div>
        )}
      </div>
    </>
  );
}

function Terms({ asked }: { asked: Asked }) {
  return (
    <ul>
      {asked.asks.map((each) => (
        <li key={each}>{translated(each)}</li>
      ))}
      {asked.declines.map((each) => (
        <li key={each}>
          <strong>{t("willDecline")}</strong> {translated(each)}.
        </li>
      ))}
    </ul>
  );
}

/** What the device does now, in one sentence. */
function sentence({ node, problem, paused, joined, messages, declined }: Taking): string {
  const why = translated(problem?.error ?? "");
  if (node === "off") return t("nodeOff");
  if (node === "connecting") return t("nodeConnecting");
  if (node === "waiting") return t("nodeWaiting", { why });
  if (node === "failed") return t("nodeFailed", { why });
  if (paused && !joined) return t("nodePaused");
  if (declined !== null) return declined ? t("nodeDeclined", { why: translated(declined) }) : t("nodeDeclinedAll");
  return messages ? t("nodeTaking") : t("nodeConnected");
}

function Running({ taking, part, act }: { taking: Taking; part: Part; act: Act }) {
  const { accepted, node, problem, joined, paused, uploads, round, time } = taking;
  const [sure, setSure] = useState(false);
  const facts = [
    t("uploadsSoFar", { n: uploads }),
    ...(round === null ? [] : [t("lastRound", { round: round + 1 })]),
    ...(time === null ? [] : [t("lastMessage", { time: day(time, true) })]),
  ];
  const button = (of: Key, to: Change, done: Key | null) => <Button of={of} onClick={() => void act(done, part.change(to))} />;
  return (
    <>
      <h3>{t("federationAt", { federation: accepted.federation, server: accepted.server })}</h3>
      <p role="status" class="state">
        {sentence(taking)}
      </p>
      {node === "failed" && problem?.next && <p class="hint">{t("next", { what: translated(problem.next) })}</p>}
      <p class="hint">{facts.join(" · ")}</p>
      <details>
        <summary>{t("whatYouAgreedTo")}</summary>
        <Terms asked={accepted} />
      </details>
      <div class="buttons">
        {node === "off" ? button("start", "start", null) : button("stop", "stop", "nodeOff")}
        {joined && button("pause", "pause", "pausedUntil")}
        {paused && !joined && button("goOn", "go on", "goesOn")}
        {sure ? (
          <Button of="yesLeave" class="danger" onClick={() => void act("hasLeft", part.leave())} />
        ) : (
          <Button of="leave" class="quiet" onClick={() => setSure(true)} />
        )}
      </div>
    </>
  );
}
