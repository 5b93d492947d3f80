/** Who else can read a history that the browser keeps, and the choice to keep nothing. */

import type { Device } from "./device";
import { type Key, t } from "./language";

export function Keeping({ device, onKeep }: { device: Device; onKeep: () => void }) {
  if (!device.keep) return null;
  const choice = (keeps: boolean, of: Key) => (
    <label class="check">
      <input type="radio" name="keeping" checked={device.keeps === keeps} onChange={() => void device.keep?.(keeps).then(onKeep)} />
      {t(of)}
    </label>
  );
  return (
    <section aria-labelledby="keeping-title">
      <h2 id="keeping-title">{t("whoElseCanRead")}</h2>
      <p>{location.protocol === "file:" ? t("otherFiles") : t("otherPages", { host: location.host })}</p>
      <fieldset>
        <legend>{t("yourHistory")}</legend>
        {choice(true, "keepIt")}
        {choice(false, "keepNothing")}
      </fieldset>
    </section>
  );
}
