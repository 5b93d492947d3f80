/** Model: where it comes from, who signed it, and what is known about it. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Device, Folder } from "./device";
import { Failed } from "./parts";

const NAMES: Record<string, string> = { "hr@10": "HR@10", "ndcg@10": "NDCG@10" };

export function ModelScreen({ device: { about, folder } }: { device: Device }) {
  const figures = Object.keys(NAMES).filter((name) => name in about.figures);
  return (
    <>
      <h1>Model</h1>
      <p>
        The signature of the model holds: it has not changed since its publisher signed it. Whether the key below is the
        publisher's, only the publisher can tell. Compare it with what the publisher says elsewhere.
      </p>
      <dl class="about">
        <Row name="Key fingerprint">
          <code>{about.fingerprint}</code>
        </Row>
        <Row name="Signature">Ed25519, checked {folder ? "by the device whenever it opens the model" : "in this browser"}</Row>
        <Row name="Method">{about.method}</Row>
        {about.trainedOn && <Row name="Trained on">{about.trainedOn}</Row>}
        <Row name="Films">{about.items.toLocaleString("en")}</Row>
        <Row name="Catalogue version">{about.catalogueVersion}</Row>
        {figures.map((name) => (
          <Row key={name} name={`${NAMES[name]}, full ranking`}>
            {about.figures[name]?.toFixed(4)}
          </Row>
        ))}
        <Row name="Size">{about.bytes < 1e6 ? `${Math.ceil(about.bytes / 1e3)} kB` : `${(about.bytes / 1e6).toFixed(1)} MB`}</Row>
        <Row name="Made with">Solera {about.library}</Row>
        <Row name="SHA-256">
          <code>{about.digest}</code>
        </Row>
      </dl>
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
      location.reload(); // films, genres and years are those of the other model
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <section aria-labelledby="versions-title">
      <h2 id="versions-title">Another version</h2>
      <p>Get the new bundle from the publisher. Only bundles that are signed with the key above are accepted. Your history stays.</p>
      <Failed error={error} />
      <div class="buttons">
        <label class="file">
          Update from a bundle
          <input
            type="file"
            accept=".bundle"
            onChange={(event) => {
              const file = event.currentTarget.files?.[0];
              if (file) void change(folder.update(file));
              event.currentTarget.value = "";
            }}
          />
        </label>
        {folder.former && (
          <button type="button" onClick={() => void change(folder.goBack())}>
            Go back to the model before (catalogue version {folder.former.version})
          </button>
        )}
      </div>
    </section>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
