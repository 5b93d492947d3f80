/** Model: where it comes from, who signed it, and what is known about it. */

import type { ComponentChildren } from "preact";
import type { Device } from "./device";

const NAMES: Record<string, string> = { "hr@10": "HR@10", "ndcg@10": "NDCG@10" };

export function ModelScreen({ device: { about } }: { device: Device }) {
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
        <Row name="Signature">Ed25519, checked in this browser</Row>
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
    </>
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
