// Keeps the page's files, so that it works offline after the first visit. tools/js_demo.py puts a hash of all files in
// the place of CONTENT: a page that changed is fetched anew, as a whole.
const CACHE = "ternarybert-demo-CONTENT";
const FILES = ["./", "style.css", "demo.js", "worker.js", "model.tbert"];
FILES.push(...["index", "engine", "errors", "source"].map((name) => `ternarybert/${name}.js`));
FILES.push(...["relaxed-simd", "simd128"].map((kernel) => `ternarybert/wasm/ternarybert-${kernel}.wasm`));

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

addEventListener("activate", (event) => {
  const old = (names) => names.filter((name) => name.startsWith("ternarybert-demo-") && name !== CACHE);
  event.waitUntil(caches.keys().then((names) => Promise.all(old(names).map((name) => caches.delete(name)))));
});

addEventListener("fetch", (event) => {
  event.respondWith(caches.match(event.request).then((kept) => kept ?? fetch(event.request)));
});
