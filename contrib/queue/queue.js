#!/usr/bin/env node
// Queues a task from Node by the program itself, without a shell in between. Any driver of PostgreSQL or MySQL does it
// too: INSERT INTO "TaskQueue" ("TaskClass", "TaskData") VALUES ($1, $2), inside the application's own transaction.
// Usage: queue.js CLASS JSON
'use strict';

const { execFileSync } = require('node:child_process');

const [taskClass, json] = process.argv.slice(2);
// The data goes through standard input: an argument could be too long, and everybody can read it.
const id = execFileSync('taskqueue', ['queue', taskClass, '-'], { input: json, encoding: 'utf8' }).trim();
console.log(`queued task ${id}`);
