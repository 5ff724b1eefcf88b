// Loads the page again when something has changed, keeps what the reader has typed, and answers to keys.
"use strict";

const LEAST_MSECS = 1000;
let last = 0;
let waiting = false;
let isAsked = false;

function isTyping(main) {
  const field = document.activeElement;
  return main.contains(field) && field.matches("input, textarea, select");
}

// What was typed into a field that the focus has left.
function keepFields(main, fresh) {
  for (const field of main.querySelectorAll("input[id], textarea[id]")) {
    const same = fresh.querySelector("#" + CSS.escape(field.id));
    if (same && field.value !== field.defaultValue) same.value = field.value;
  }
}

async function renew() {
  const main = document.querySelector("main");
  if (waiting) isAsked = true;
  if (waiting || !main.dataset.live || document.hidden) return;
  if (isTyping(main)) return;
  waiting = true;
  await new Promise((go) => setTimeout(go, Math.max(0, last + LEAST_MSECS - Date.now())));
  last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) return location.reload();
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    for (const details of main.querySelectorAll("details[id]")) {
      const same = fresh.querySelector("#" + CSS.escape(details.id));
      if (same) same.open = details.open;
    }
    // The reader may have begun to type while the page was loaded.
    if (isTyping(main)) return;
    keepFields(main, fresh);
    const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
    main.replaceWith(fresh);
    if (isAtEnd && fresh.dataset.live === "log") scrollTo(0, document.body.scrollHeight);
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost");
  } finally {
    waiting = false;
  }
  // What changed while the page was loaded.
  if (isAsked) {
    isAsked = false;
    renew();
  }
}

// A browser has six connections to a server, and a stream keeps one: only a page that is seen has a stream.
let stream = null;
function listen() {
  if (stream || document.hidden) return;
  stream = new EventSource("/live");
  stream.addEventListener("changed", renew);
  stream.addEventListener("error", () => document.body.classList.add("lost"));
  stream.addEventListener("open", () => document.body.classList.remove("lost"));
}
function hangUp() {
  stream?.close();
  stream = null;
}

const kind = document.querySelector("main")?.dataset.live;
if (kind === "changes") {
  listen();
  addEventListener("pagehide", hangUp);
  addEventListener("pageshow", listen);
  // Ages and times go on while nothing changes.
  setInterval(renew, 10000);
} else if (kind === "log") {
  setInterval(renew, LEAST_MSECS);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return hangUp();
  if (kind === "changes") listen();
  renew();
});

const KEYS = { n: "/", t: "/tasks", f: "/failures", s: "/schedules", r: "/runners", c: "/classes", e: "/events" };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) return;
  if (event.key === "/") {
    const box = document.querySelector("input[type=search]");
    if (box) {
      event.preventDefault();
      box.focus();
    }
  } else if (KEYS[event.key]) {
    location.href = KEYS[event.key];
  }
});
