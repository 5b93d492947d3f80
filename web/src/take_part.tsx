/** Take part: read an invitation before agreeing, follow what the device does, pause and leave. */

import { useEffect, useId, useState } from "preact/hooks";
import { dateOf } from "./browser_device";
import { PageError } from "./errors";
import type { Asked, Change, Part, PartState, Taking } from "./part";
import { counted, Failed, Said } from "./parts";

const LOOK = 2000; // milliseconds between two looks at the node
const LONGEST = 1_000_000; // bytes of a file

type Act = (text: string, change: Promise<PartState>) => Promise<void>;

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
  const act: Act = async (text, change) => {
    setError(null);
    setSaid("");
    try {
      setState(await change);
      setSaid(text);
      onNews();
    } catch (thrown) {
      setError(thrown);
    }
  };
  if (!state) return <Failed error={error} />;
  return (
    <section class="part" aria-labelledby="part-title">
      <h2 id="part-title">Take part</h2>
      {state.missing ? (
        <p class="note">
          {state.missing.error}: <code>{state.missing.next}</code>
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
  const [over, setOver] = useState(false);
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
  const take = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > LONGEST) {
      setError(new PageError(`${file.name} is too large for an invitation`, "choose the file that you were sent"));
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
      <p>
        In a federation, devices improve the model together, and every history stays on its device. You need an
        invitation of somebody who runs one. You see what it asks for before anything is kept or sent.
      </p>
      <form
        class={over ? "drop over" : "drop"}
        onSubmit={(event) => {
          event.preventDefault();
          void read(text);
        }}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          void take(event.dataTransfer?.files[0]);
        }}
      >
        <label for={id}>Link of the invitation</label>
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
        <p class="hint">
          Or drop its file here. A QR code holds the same link: scan it with a camera, and paste the text that it gives.
          The link holds a secret key of yours: show it to nobody.
        </p>
        <div class="buttons">
          <button type="submit" disabled={!text.trim()}>
            Read the invitation
          </button>
          <label class="file">
            Choose a file
            <input
              type="file"
              onChange={(event) => {
                void take(event.currentTarget.files?.[0]);
                event.currentTarget.value = "";
              }}
            />
          </label>
        </div>
      </form>
      <Failed error={error} />
      <div role="status">
        {asked && (
          <div class="asked">
            <h3>{asked.federation} asks you to take part</h3>
            <Terms asked={asked} />
            <p>
              This is what the federation announces. What holds are the limits of this device, below. Your device will
              connect to {asked.server} as long as <code>solera device open</code> runs, until you stop it or leave.
            </p>
            <div class="buttons">
              <button type="button" class="main" onClick={() => void act("You have agreed.", part.agree(text))}>
                Agree and take part
              </button>
              <button type="button" onClick={forget}>
                Do not take part
              </button>
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
        <li key={each}>{each}</li>
      ))}
      {asked.declines.map((each) => (
        <li key={each}>
          <strong>Your device will decline:</strong> {each}.
        </li>
      ))}
    </ul>
  );
}

/** What the device does now, in one sentence. */
function sentence({ node, problem, paused, joined, messages, declined }: Taking): string {
  if (node === "off") return "Stopped. Your device is not connected, and nothing is sent.";
  if (node === "connecting") return "Connecting to the server …";
  if (node === "waiting") return `Waiting for the server: ${problem?.error}. Your device tries again by itself.`;
  if (node === "failed") return `Your device could not connect: ${problem?.error}. It tries again every minute.`;
  if (paused && !joined) return "Paused. Your device is connected, and declines whatever the server asks.";
  if (declined !== null) return `Your device declined${declined ? `: ${declined}` : " what the server asked"}.`;
  if (!messages) return "Connected. Waiting for the server to begin.";
  return "Taking part.";
}

function Running({ taking, part, act }: { taking: Taking; part: Part; act: Act }) {
  const { accepted, node, problem, joined, paused, uploads, round, time } = taking;
  const [sure, setSure] = useState(false);
  const facts = [
    `${counted(uploads, "upload", "uploads")} so far`,
    ...(round === null ? [] : [`last round: ${round + 1}`]),
    ...(time === null ? [] : [`last message: ${dateOf(time).replace("T", " ").replace("Z", " UTC")}`]),
  ];
  const button = (text: string, to: Change, done: string) => (
    <button type="button" onClick={() => void act(done, part.change(to))}>
      {text}
    </button>
  );
  return (
    <>
      <h3>
        {accepted.federation}, at {accepted.server}
      </h3>
      <p role="status" class="state">
        {sentence(taking)}
      </p>
      {node === "failed" && problem?.next && <p class="hint">Next: {problem.next}.</p>}
      <p class="hint">{facts.join(" · ")}</p>
      <details>
        <summary>What you have agreed to</summary>
        <Terms asked={accepted} />
      </details>
      <div class="buttons">
        {node === "off" ? button("Start", "start", "") : button("Stop", "stop", "Stopped. Your device is not connected.")}
        {joined && button("Pause", "pause", "Paused. Your device declines until you go on.")}
        {paused && !joined && button("Go on", "go on", "Your device takes part again.")}
        {sure ? (
          <button
            type="button"
            class="danger"
            onClick={() => void act("You have left. What was sent before cannot be called back.", part.leave())}
          >
            Yes, leave and delete the key
          </button>
        ) : (
          <button type="button" onClick={() => setSure(true)}>
            Leave
          </button>
        )}
      </div>
    </>
  );
}
