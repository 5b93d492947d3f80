// Keeps the page, so that it opens without a network. It fetches these four files of its own folder and nothing else.
const OURS = `solera ${registration.scope} `;
const CACHE = `${OURS}{{version}}`;
const FILES = ["./", "index.html", "app.webmanifest", "icon.svg"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const old = (name) => name.startsWith(OURS) && name !== CACHE;
  const removed = caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name))));
  event.waitUntil(removed.then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  const kept = caches.open(CACHE).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(kept.then((found) => found ?? fetch(event.request)));
});
