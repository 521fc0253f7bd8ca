// The page: what is typed goes to the worker, which has the model; its answers become lists.
const $ = (id) => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });

/** Questions that wait for an answer, by number. */
const waiting = new Map();
let asked = 0;
function ask(question) {
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ number: asked, ...question });
  });
}

worker.onmessage = ({ data }) => {
  if (data.progress) {
    const { loaded, total } = data.progress;
    if (total) $("progress").value = loaded / total;
    $("status").textContent = `Loading … ${megabytes(loaded)}`;
    return;
  }
  const { resolve, reject } = waiting.get(data.number);
  waiting.delete(data.number);
  if (data.error) reject(new Error(data.error));
  else resolve(data.result);
};
worker.onerror = (event) => fail(new Error(event.message || "the worker did not start"));

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;
const milliseconds = (time) => `${time.toFixed(1)} ms`;

function fail(error) {
  $("progress").hidden = true;
  $("status").textContent = error.message;
  $("status").classList.add("error");
}

function show(list, rows) {
  list.replaceChildren(
    ...rows.map(({ text, score }) => {
      const item = document.createElement("li");
      item.style.setProperty("--part", `${Math.round(100 * Math.max(0, Math.min(1, score)))}%`);
      for (const part of [text, score.toFixed(3)]) item.appendChild(document.createElement("span")).textContent = part;
      return item;
    }),
  );
}

/** Runs f for the newest content of some fields: what is typed meanwhile is answered once, afterwards. */
function follow(ids, f) {
  let running = false;
  let changed = false;
  const run = async () => {
    changed = true;
    if (running) return;
    running = true;
    while (changed) {
      changed = false;
      try {
        await f();
      } catch (error) {
        fail(error);
      }
    }
    running = false;
  };
  for (const id of ids) $(id).addEventListener("input", run);
  return run();
}

const lines = (text, separator) => text.split(separator).map((part) => part.trim()).filter(Boolean);

async function search() {
  const passages = lines($("passages").value, "\n");
  const { rows, time } = await ask({ kind: "search", query: $("query").value, passages });
  show($("found"), rows);
  $("search-time").textContent = `${passages.length} passages in ${milliseconds(time)}`;
}

async function classify() {
  const { rows, time } = await ask({
    kind: "classify",
    text: $("text").value,
    labels: lines($("labels").value, ","),
  });
  show($("classes"), rows);
  $("classify-time").textContent = milliseconds(time);
}

try {
  const { bytes, time, kernel, task } = await ask({ kind: "load" });
  $("status").textContent = `${megabytes(bytes)} loaded, ready after ${milliseconds(time)}; kernel ${kernel}, one thread`;
  $("progress").hidden = true;
  $("own-labels").hidden = task === "classify"; // such a model has labels of its own
  for (const field of document.querySelectorAll("input, textarea")) field.disabled = false;
  await follow(["query", "passages"], search);
  await follow(["text", "labels"], classify);
  if ("serviceWorker" in navigator) {
    await navigator.serviceWorker.register("sw.js");
    await navigator.serviceWorker.ready;
    document.body.dataset.offline = "ready";
  }
} catch (error) {
  fail(error);
}
