// Loads the page again when something has changed, keeps what the reader has typed, and answers to keys.
"use strict";

const LEAST_MSECS = 1000;
const LEAST_NOW_MSECS = 400;
const LEAST_LOG_MSECS = 100;
const RECONNECT_MSECS = 3000;
const LEAST_SUBMIT_MSECS = 10000;
let last = 0;
let waiting = false;
let isAsked = false;

// Pressed twice, a button sends the same form.
let submittedAt = 0;
addEventListener("submit", () => { submittedAt = Date.now(); });

function isInUse(main) {
  if (Date.now() - submittedAt < LEAST_SUBMIT_MSECS) return true;
  const field = document.activeElement;
  return main.contains(field) && field.matches("input, textarea, select");
}

// Which element of its page it is, whatever it counts.
function nameOf(element) {
  return element.localName + (element.getAttribute("href") ?? element.form?.getAttribute("action") + element.textContent);
}

// Puts the new content in place of the old one; the focus stays on the same link or button.
function replace(main, fresh) {
  const focused = document.activeElement;
  if (!main.contains(focused)) return main.replaceWith(fresh);
  const name = nameOf(focused);
  const alike = (root) => [...root.querySelectorAll("a, button, summary")].filter((one) => nameOf(one) === name);
  const place = alike(main).indexOf(focused);
  main.replaceWith(fresh);
  alike(fresh)[place]?.focus({ preventScroll: true });
}

// What was typed into a field that the focus has left.
function keepFields(main, fresh) {
  for (const field of main.querySelectorAll("input[id], textarea[id]")) {
    const same = fresh.querySelector("#" + CSS.escape(field.id));
    if (same && field.value !== field.defaultValue) same.value = field.value;
  }
}

function isLog(main) {
  return main.dataset.stream?.startsWith("/runs/");
}

async function renew() {
  const main = document.querySelector("main");
  if (waiting) isAsked = true;
  if (waiting || !main.dataset.stream || document.hidden) return;
  if (isInUse(main)) return;
  waiting = true;
  const least = isLog(main) ? LEAST_LOG_MSECS : location.pathname === "/" ? LEAST_NOW_MSECS : LEAST_MSECS;
  await new Promise((go) => setTimeout(go, Math.max(0, last + least - Date.now())));
  last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    // Its login has ended, or what it shows was deleted.
    if (answer.redirected || answer.status === 404) return location.reload();
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    for (const details of main.querySelectorAll("details[id]")) {
      const same = fresh.querySelector("#" + CSS.escape(details.id));
      if (same) same.open = details.open;
    }
    // The reader may have begun to type while the page was loaded.
    if (isInUse(main)) return;
    keepFields(main, fresh);
    const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
    replace(main, fresh);
    if (isAtEnd && isLog(main)) scrollTo(0, document.body.scrollHeight);
    if (fresh.dataset.stream !== main.dataset.stream) {
      hangUp();
      listen();
    }
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
  const address = document.querySelector("main")?.dataset.stream;
  if (stream || !address || document.hidden) return;
  stream = new EventSource(address);
  stream.addEventListener("changed", renew);
  stream.addEventListener("error", (event) => {
    // The stream of a log ends with its run; the page is loaded again then.
    if (!waiting) document.body.classList.add("lost");
    // The browser connects again unless a proxy has answered in place of the server.
    if (event.target.readyState === EventSource.CLOSED) {
      hangUp();
      setTimeout(listen, RECONNECT_MSECS);
    }
  });
  stream.addEventListener("open", () => document.body.classList.remove("lost"));
}
function hangUp() {
  stream?.close();
  stream = null;
}

listen();
addEventListener("pagehide", hangUp);
addEventListener("pageshow", () => {
  submittedAt = 0;
  listen();
});
// Ages and times go on while nothing changes.
setInterval(renew, 10000);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return hangUp();
  listen();
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
