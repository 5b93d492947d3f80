/** The app: four screens, a navigation between them, and the choice of the language. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Device } from "./device";
import { ForYou } from "./for_you";
import { HistoryScreen } from "./history_screen";
import { currentLanguage, type Language, LANGUAGES, remember, t } from "./language";
import { LeftScreen } from "./left_screen";
import { ModelScreen } from "./model_screen";
import { Failed, Waiting } from "./parts";

const SCREENS = {
  "for-you": { name: "forYou", Screen: ForYou, icon: "M12 3l2.6 5.6 6.1.7-4.5 4.2 1.2 6L12 16.5l-5.4 3 1.2-6L3.3 9.3l6.1-.7z" },
  history: { name: "history", Screen: HistoryScreen, icon: "M12 7v5l3.5 2M4 12a8 8 0 108-8 8 8 0 00-6.5 3.3M5 3.5v4h4" },
  left: { name: "sent", Screen: LeftScreen, icon: "M12 3l7.5 3v5.5c0 4.5-3 8-7.5 9.5-4.5-1.5-7.5-5-7.5-9.5V6zM9 12l2.2 2.2L15.5 10" },
  model: { name: "model", Screen: ModelScreen, icon: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9" },
} as const;
type Place = keyof typeof SCREENS;

function placeNow(): Place {
  const place = location.hash.slice(1);
  return place in SCREENS ? (place as Place) : "for-you";
}

export function App({ device }: { device: Device }) {
  const [place, setPlace] = useState<Place>(placeNow);
  const [error, setError] = useState<unknown>(null);
  const [, setKeeps] = useState(device.keeps);
  const [language, setLanguage] = useState(currentLanguage());
  useEffect(() => {
    const follow = () => {
      setPlace(placeNow());
      setError(null);
      scrollTo(0, 0);
    };
    const fail = (event: PromiseRejectionEvent) => setError(event.reason);
    addEventListener("hashchange", follow);
    addEventListener("unhandledrejection", fail);
    return () => {
      removeEventListener("hashchange", follow);
      removeEventListener("unhandledrejection", fail);
    };
  }, []);
  const { Screen } = SCREENS[place];
  return (
    <>
      <header>
        <a class="skip" href="#main" onClick={focusMain}>
          {t("skip")}
        </a>
        <span class="brand">{document.title}</span>
        <nav aria-label={t("screens")}>
          {Object.entries(SCREENS).map(([key, { name, icon }]) => (
            <a key={key} href={`#${key}`} aria-current={key === place ? "page" : undefined}>
              <svg viewBox="0 0 24 24" aria-hidden="true">
                <path d={icon} />
              </svg>
              {t(name)}
            </a>
          ))}
        </nav>
        <select
          class="language"
          aria-label={t("language")}
          value={language}
          onChange={(event) => {
            const chosen = event.currentTarget.value as Language;
            remember(chosen);
            setLanguage(chosen);
          }}
        >
          {Object.entries(LANGUAGES).map(([key, name]) => (
            <option key={key} value={key} lang={key}>
              {name}
            </option>
          ))}
        </select>
      </header>
      <main id="main" tabIndex={-1} key={language}>
        {!device.keeps && <p class="note">{t("nothingIsKept")}</p>}
        <Failed error={error} />
        <Screen device={device} onKeep={() => setKeeps(device.keeps)} />
      </main>
    </>
  );
}

/** What is shown before there is a device: that it is being opened, or why it cannot be. */
export function Opening({ children }: { children?: ComponentChildren }) {
  return (
    <main>
      <h1>{children ? t("cannotRecommend") : t("forYou")}</h1>
      {children ?? <Waiting />}
    </main>
  );
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
