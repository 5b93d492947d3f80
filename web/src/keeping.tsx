/** Who else can read a history that the browser keeps, and the choice to keep nothing. */

import type { Device } from "./device";

export function Keeping({ device, onKeep }: { device: Device; onKeep: () => void }) {
  if (!device.keep) return null;
  const choice = (keeps: boolean, text: string) => (
    <label class="check">
      <input
        type="radio"
        name="keeping"
        checked={device.keeps === keeps}
        onChange={() => void device.keep?.(keeps).then(onKeep)}
      />
      {text}
    </label>
  );
  return (
    <section aria-labelledby="keeping-title">
      <h2 id="keeping-title">Who else can read your history</h2>
      {location.protocol === "file:" ? (
        <p>
          You have opened this page from your disk. In Chrome, Edge and other browsers made from Chromium, any HTML file
          that you open from your disk can read what such pages keep: your films, their dates and what you hide. It may
          be a file from a mail or a download.
        </p>
      ) : (
        <p>Other pages of {location.host} can read what is kept in this browser.</p>
      )}
      <fieldset>
        <legend>Your history</legend>
        {choice(true, "Keep it in this browser")}
        {choice(false, "Keep nothing: forget when this tab is closed")}
      </fieldset>
    </section>
  );
}
