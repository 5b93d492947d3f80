/** Model: where it comes from, who signed it, and what is known about it. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Device, Folder } from "./device";
import { bytes, type Key, number, t } from "./language";
import { Button, Failed, FileButton } from "./parts";

const FIGURES = { "hr@10": "hitRate", "ndcg@10": "rankQuality" } as const;

export function ModelScreen({ device: { about, folder } }: { device: Device }) {
  return (
    <>
      <h1>{t("model")}</h1>
      <p class="lead">{t("signatureHolds")}</p>
      <dl class="about">
        <Row of="fingerprint">
          <code>{about.fingerprint}</code>
        </Row>
        {about.trainedOn && <Row of="trainedOn">{about.trainedOn}</Row>}
        <Row of="titles">{number(about.items)}</Row>
        <Row of="catalogueVersion">{about.catalogueVersion}</Row>
      </dl>
      <details class="panel">
        <summary>{t("advanced")}</summary>
        <dl class="about">
          <Row of="method">{about.method}</Row>
          <Row of="signature">{t(folder ? "signatureByDevice" : "signatureByBrowser")}</Row>
          {Object.entries(FIGURES).map(([name, of]) => name in about.figures && <Row of={of}>{number(about.figures[name]!, 4)}</Row>)}
          <Row of="size">{bytes(about.bytes)}</Row>
          <Row of="madeWith">Solera {about.library}</Row>
          <Row of="digest">
            <code>{about.digest}</code>
          </Row>
        </dl>
      </details>
      {folder && <Versions folder={folder} />}
    </>
  );
}

/** Another version of the model: a newer one from a file, or the one before. */
function Versions({ folder }: { folder: Folder }) {
  const [error, setError] = useState<unknown>(null);
  const change = async (done: Promise<void>) => {
    setError(null);
    try {
      await done;
      location.reload(); // titles, genres and years are those of the other model
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <section aria-labelledby="versions-title">
      <h2 id="versions-title">{t("anotherVersion")}</h2>
      <p>{t("anotherVersionHow")}</p>
      <Failed error={error} />
      <div class="buttons">
        <FileButton of="updateFromBundle" accept=".bundle" onFile={(file) => void change(folder.update(file))} />
        {folder.former && <Button of="goBackTo" values={{ version: `${folder.former.version}` }} onClick={() => void change(folder.goBack())} />}
      </div>
    </section>
  );
}

function Row({ of, children }: { of: Key; children: ComponentChildren }) {
  return (
    <div>
      <dt>{t(of)}</dt>
      <dd>{children}</dd>
    </div>
  );
}
