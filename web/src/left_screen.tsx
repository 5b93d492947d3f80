/** What left this device: of a page without a device nothing, and how to check that. */

import { useState } from "preact/hooks";
import type { Device } from "./device";
import { t } from "./language";
import { LeftFolder } from "./left_folder";
import { Button, Text } from "./parts";

const NOWHERE = "https://solera.invalid/"; // a name that can never exist

export function LeftScreen({ device }: { device: Device }) {
  return device.folder ? <LeftFolder folder={device.folder} /> : <LeftNothing device={device} />;
}

function LeftNothing({ device }: { device: Device }) {
  const [tried, setTried] = useState("");
  const policy = document.querySelector<HTMLMetaElement>('meta[http-equiv="Content-Security-Policy"]')?.content ?? "";
  const attempt = async () => {
    const refused = new Promise<string>((resolve) => {
      const seen = (event: SecurityPolicyViolationEvent) => resolve(event.effectiveDirective);
      document.addEventListener("securitypolicyviolation", seen, { once: true });
      setTimeout(() => resolve(""), 2000);
    });
    await fetch(NOWHERE).catch(() => undefined);
    const rule = await refused;
    setTried(rule ? t("refused", { rule: `${rule} 'none'` }) : t("notRefused"));
  };
  return (
    <>
      <h1>{t("whatLeft")}</h1>
      <p class="nothing">
        <strong>{t("nothing")}</strong> {t("cannotConnect")}
      </p>
      <p>
        {t(device.keeps ? "historyInBrowser" : "historyInTab")} <a href="#history">{t("whoElseCanRead")}</a>
      </p>
      <h2>{t("howToCheck")}</h2>
      <ol class="checks">
        <li>
          <p>{t("checkTry")}</p>
          <Button of="tryToConnect" class="main" onClick={() => void attempt()} />
          <p role="status">{tried}</p>
        </li>
        <li>
          <p>{t("checkOffline")}</p>
        </li>
        <li>
          <p>{t("checkTools")}</p>
        </li>
        <li>
          <p>
            <Text of="checkSource" rule={<code>connect-src 'none'</code>} />
          </p>
          <details>
            <summary>{t("advanced")}</summary>
            <pre tabIndex={0} aria-label={t("policy")}>
              {policy.replaceAll("; ", ";\n")}
            </pre>
          </details>
        </li>
      </ol>
      {location.protocol.startsWith("http") && <p>{t("cameFrom", { host: location.host })}</p>}
    </>
  );
}
