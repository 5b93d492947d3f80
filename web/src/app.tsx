/** The app: four screens and a navigation between them. */

import { useEffect, useState } from "preact/hooks";
import type { Device } from "./device";
import { ForYou } from "./for_you";
import { HistoryScreen } from "./history_screen";
import { LeftScreen } from "./left_screen";
import { ModelScreen } from "./model_screen";
import { Failed } from "./parts";

const SCREENS = {
  "for-you": { name: "For you", Screen: ForYou },
  history: { name: "My history", Screen: HistoryScreen },
  left: { name: "What left this device", Screen: LeftScreen },
  model: { name: "Model", Screen: ModelScreen },
} as const;
type Place = keyof typeof SCREENS;

function placeNow(): Place {
  const place = location.hash.slice(1);
  return place in SCREENS ? (place as Place) : "for-you";
}

export function App({ device }: { device: Device }) {
  const [place, setPlace] = useState<Place>(placeNow);
  useEffect(() => {
    const follow = () => setPlace(placeNow());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const fail = (event: PromiseRejectionEvent) => setError(event.reason);
    addEventListener("unhandledrejection", fail);
    return () => removeEventListener("unhandledrejection", fail);
  }, []);
  useEffect(() => setError(null), [place]);
  const [, setKeeps] = useState(device.keeps);
  const { Screen } = SCREENS[place];
  return (
    <>
      <header>
        <a class="skip" href="#main" onClick={focusMain}>
          Skip to content
        </a>
        <span class="brand">{document.title}</span>
        <nav aria-label="Screens">
          {Object.entries(SCREENS).map(([key, { name }]) => (
            <a key={key} href={`#${key}`} aria-current={key === place ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
      </header>
      <main id="main" tabIndex={-1}>
        {!device.keeps && (
          <p class="note">Nothing is kept: your history is forgotten when you close this tab.</p>
        )}
        <Failed error={error} />
        <Screen device={device} onKeep={() => setKeeps(device.keeps)} />
      </main>
    </>
  );
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
