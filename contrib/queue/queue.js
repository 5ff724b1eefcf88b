#!/usr/bin/env node
// Queues a task from Node with the program, without a shell.
// Usage: queue.js CLASS JSON
'use strict';

const { queue } = require('./taskqueue-queue.js');

const [taskClass, json] = process.argv.slice(2);
if (json === undefined) {
  console.error('usage: queue.js CLASS JSON');
  process.exit(2);
}
queue(taskClass, JSON.parse(json)).then(
  (id) => console.log(`queued task ${id}`),
  (error) => {
    console.error(error.message);
    if (error.hint) console.error(`hint: ${error.hint}`);
    process.exitCode = error.status ?? 1;
  },
);
