// graphile-worker for Node. It deletes a job that is done, keeps no history and no output.
"use strict";
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");
const bench = require("./node_bench.cjs");

const pgPool = new Pool({ connectionString: bench.url, max: 16 });
// It asks for these; an error is one of the measurement all the same.
pgPool.on("error", (error) => console.error(`error: ${error.message}`));
pgPool.on("connect", (client) => client.on("error", () => {}));
const logger = new Logger(() => () => {});

async function withUtils(what) {
  const utils = await makeWorkerUtils({ pgPool, logger });
  await bench.saySeconds(() => what(utils));
}

async function drain() {
  const size = bench.setting("queue", -1);
  const batching = bench.setting("batch", 0) ? { completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
  const worker = { concurrentJobs: bench.setting("jobs", 1), ...batching };
  if (size > 0) worker.localQueue = { size };
  await run({
    pgPool,
    logger,
    noHandleSignals: true,
    taskList: { noop: () => bench.work(false), true: () => bench.work(true) },
    preset: { worker },
  });
  await bench.sayWhen(async () => {
    const left = await pgPool.query("SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs) AS left");
    return !left.rows[0].left;
  });
}

bench.main({
  setup: () => runMigrations({ pgPool, logger }),
  fill: () =>
    withUtils(async (utils) => {
      const identifier = bench.rest[0] ?? "noop";
      for (const part of bench.parts(5000)) await utils.addJobs(part.map((n) => ({ identifier, payload: { n } })));
    }),
  add: () => withUtils((utils) => bench.byClients(() => utils.addJob("noop", { n: 1 }))),
  drain,
});
