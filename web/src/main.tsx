/**
 * Start the app. A page that holds a model is a device of its own: check the model, open the person's data. A page
 * without one comes from the service of a device, and shows that device.
 */

import { type ComponentChild, render } from "preact";
import { App, Opening } from "./app";
import { BrowserDevice } from "./browser_device";
import { readBundle } from "./bundle";
import { speakFirst } from "./language";
import { Failed } from "./parts";
import { ServiceDevice, takeToken } from "./service_device";
import { Store } from "./store";
import "./style.css";

async function start(): Promise<void> {
  const root = document.getElementById("app") as HTMLElement;
  const held = document.getElementById("bundle");
  const show = (what: ComponentChild) => render(what, root);
  speakFirst();
  root.textContent = "";
  show(<Opening />);
  try {
    const device = held ? await inBrowser(held.textContent ?? "") : await ServiceDevice.open(takeToken());
    show(<App device={device} />);
  } catch (error) {
    show(
      <Opening>
        <Failed error={error} />
      </Opening>,
    );
  }
  document.documentElement.dataset["ready"] = `${Math.round(performance.now())}`; // for measuring
  if (held && location.protocol.startsWith("http")) install();
}

async function inBrowser(model: string): Promise<BrowserDevice> {
  const bundle = await readBundle(decodeBase64(model));
  // Pages of one publisher and data set share a history: a new version of the page finds it again.
  const store = await Store.open(`solera ${bundle.fingerprint} ${String(bundle.manifest.trained["dataset"])}`);
  document.addEventListener("visibilitychange", () => void store.load());
  return new BrowserDevice(bundle, store);
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

/** On a web server the page can be installed, and opens without a network. A file needs no such thing. */
function install(): void {
  const link = document.createElement("link");
  [link.rel, link.href] = ["manifest", "app.webmanifest"];
  document.head.append(link);
  navigator.serviceWorker?.register("sw.js").catch(() => undefined); // the page works without it, too
}

void start();
