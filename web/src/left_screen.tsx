/** What left this device: of a page without a device nothing, and how to check that. */

import { useState } from "preact/hooks";
import type { Device } from "./device";
import { LeftFolder } from "./left_folder";

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
    const by = await refused;
    setTried(by ? `The browser refused the connection, by the rule ${by} 'none'.` : "The browser did not refuse the connection!");
  };
  return (
    <>
      <h1>What left this device</h1>
      <p class="nothing">
        <strong>Nothing.</strong> This page cannot connect to anything.
      </p>
      <p>
        Your history is {device.place} only. The recommendations are computed here, from the model that is part of the
        page. <a href="#history">My history</a> says who else can read it on this device, and lets you keep nothing.
      </p>
      <h2>How to check it</h2>
      <ol class="checks">
        <li>
          <p>Let the page try to connect, and see that the browser refuses.</p>
          <button type="button" onClick={() => void attempt()}>
            Try to connect
          </button>
          <p role="status">{tried}</p>
        </li>
        <li>
          <p>Turn the network off, reload the page and use it. Everything works.</p>
        </li>
        <li>
          <p>Open the developer tools (F12), choose Network and use the page. No request appears.</p>
        </li>
        <li>
          <p>
            Look at the source of the page. Its first lines hold this rule for the browser, where <code>connect-src 'none'</code>{" "}
            forbids all connections:
          </p>
          <pre tabIndex={0} aria-label="Content Security Policy">
            {policy.replaceAll("; ", ";\n")}
          </pre>
        </li>
      </ol>
      {location.protocol.startsWith("http") && (
        <p>
          This page came from {location.host}, which saw that somebody loaded it, as with any page. Save it to your disk
          to avoid that, too.
        </p>
      )}
    </>
  );
}
