// pg-boss. It keeps finished jobs until its maintenance deletes them.
"use strict";
const { PgBoss } = require("pg-boss");
const { Pool } = require("pg");
const bench = require("./node_bench.cjs");

const QUEUE = "bench";

async function started(options) {
  const boss = new PgBoss({ connectionString: bench.url, max: 16, ...options });
  boss.on("error", (error) => console.error(`error: ${error.message}`));
  await boss.start();
  return boss;
}

// Its maintenance is switched off while it is measured: it could only slow it.
const measured = () => started({ supervise: false, schedule: false, migrate: false });

// The jobs of a batch, so many at once.
async function workOff(jobs, atOnce, spawns) {
  const left = jobs[Symbol.iterator]();
  const slot = async () => {
    for (const _ of left) await bench.work(spawns);
  };
  await Promise.all(Array.from({ length: atOnce }, slot));
}

async function drain() {
  const boss = await measured();
  const loops = bench.setting("loops", 1);
  const options = {
    batchSize: bench.setting("batch", 1),
    localConcurrency: loops,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  const atOnce = Math.max(1, bench.setting("jobs", loops) / loops);
  await boss.work(QUEUE, options, (jobs) => workOff(jobs, atOnce, bench.spawns));
  const pool = new Pool({ connectionString: bench.url, max: 1 });
  await bench.sayWhen(async () => {
    const left = await pool.query("SELECT EXISTS (SELECT 1 FROM pgboss.job WHERE state < 'completed') AS left");
    return !left.rows[0].left;
  });
}

bench.main({
  setup: async () => (await started({})).createQueue(QUEUE),
  fill: async () => {
    const boss = await measured();
    await bench.saySeconds(async () => {
      for (const part of bench.parts(5000)) await boss.insert(QUEUE, part.map((n) => ({ data: { n } })));
    });
  },
  add: async () => {
    const boss = await measured();
    await bench.saySeconds(() => bench.byClients(() => boss.send(QUEUE, { n: 1 })));
  },
  drain,
});
