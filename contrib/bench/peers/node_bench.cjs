// What the peers in Node share: the command line of peers/rust/src/lib.rs, the work of a job, and the printing of moments.
"use strict";
const { spawn } = require("node:child_process");

const [url, verb, count, ...words] = process.argv.slice(2);
const settings = Object.fromEntries(words.filter((word) => word.includes("=")).map((word) => word.split("=")));
const rest = words.filter((word) => !word.includes("="));

exports.url = url;
exports.verb = verb;
exports.count = Number(count);
exports.rest = rest;
exports.spawns = rest[0] === "true";
exports.setting = (key, fallback) => Number(settings[key] ?? fallback);

let done = 0;

// The work of one job. No pipes: the peers do not keep what a program prints.
exports.work = (spawns) => {
  if (!spawns) {
    done += 1;
    return undefined;
  }
  return new Promise((resolve, reject) => {
    const child = spawn("/bin/true", { stdio: "ignore" });
    child.on("error", reject);
    child.on("exit", () => {
      done += 1;
      resolve();
    });
  });
};

const pause = () => new Promise((resolve) => setTimeout(resolve, 1));

// Prints the moment after all work was done and `isOver` answered with yes.
exports.sayWhen = async (isOver) => {
  while (done < exports.count) await pause();
  while (!(await isOver())) await pause();
  console.log(((performance.timeOrigin + performance.now()) / 1000).toFixed(6));
};

exports.saySeconds = async (what) => {
  const started = performance.now();
  await what();
  console.log(((performance.now() - started) / 1000).toFixed(6));
};

// So many calls shared among so many clients at once.
exports.byClients = (add) => {
  const clients = Number(rest[0] ?? 1);
  const client = async () => {
    for (let n = 0; n < exports.count / clients; n += 1) await add();
  };
  return Promise.all(Array.from({ length: clients }, client));
};

// Parts of the numbers below `count`, so large that a bulk call pays.
exports.parts = function* (size) {
  for (let start = 0; start < exports.count; start += size) {
    yield Array.from({ length: Math.min(size, exports.count - start) }, (_, n) => start + n);
  }
};

exports.main = (verbs) => {
  Promise.resolve()
    .then(() => verbs[verb]())
    .then(() => process.exit(0))
    .catch((error) => {
      console.error(`error: ${error.message}`);
      process.exit(1);
    });
};
