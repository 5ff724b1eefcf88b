// Queues tasks from Node with the program.
//
//   const { queue, QueueError } = require('./taskqueue-queue.js');
//
//   const id = await queue('mail.send', { to: 'ann@example.org' }, { unique: 'welcome-17', delay: 600, priority: 5 });
//
// `queue` checks the class, the data and the options as `taskqueue queue` does, and throws a QueueError if it refuses them. To
// queue a task if and only if a transaction of the application is committed, insert it in that transaction with any driver of
// PostgreSQL or MySQL: INSERT INTO "TaskQueue" ("TaskClass", "TaskData") VALUES ($1, $2). This is one file without dependencies:
// copy it into the application. For more, see docs/handlers.md#queueing-from-a-program.
'use strict';

const { spawn } = require('node:child_process');

const REFUSED = ['run', 'wait', 'batch'];

// Nothing was queued. status: the exit status of the program or its equivalent, null if a signal has ended the program; code: the
// kind of error; hint: how to fix it, if known.
class QueueError extends Error {
  constructor(message, status, { code, hint } = {}) {
    super(message);
    this.name = 'QueueError';
    this.status = status;
    this.code = code;
    this.hint = hint ?? undefined;
  }
}

// Queues a task and resolves to its id. If another task already has the `unique` key, resolves to the id of that task. The
// options are those of `taskqueue queue` in camel case: unique, onConflict, uniqueFor, priority, at, maxRetries, timeout, expires,
// after, afterAny, limitKey, anyClass, database and so on; `delay` is --in. Numbers for times are seconds. An option that may
// be given more than once is an array; meta may be an object. Not supported: run and wait, which return the exit status of the
// handler, and batch, which returns several ids.
async function queue(taskClass, data = {}, options = {}, program = 'taskqueue') {
  const args = ['queue', '--json', ...Object.entries(options).flatMap(option), '--', taskClass, '-'];
  const text = JSON.stringify(data);
  return new Promise((resolve, reject) => {
    const child = spawn(program, args);
    let printed = '';
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (printed += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (said += text));
    child.on('error', (error) => reject(new QueueError(`${program} cannot be started: ${error.message}`, 127)));
    child.on('close', (status, signal) => {
      if (status !== 0) return reject(errorOf(status, said, signal));
      try {
        resolve(JSON.parse(printed).id);
      } catch (error) {
        reject(error);
      }
    });
    // A program that refuses its arguments does not read the data.
    child.stdin.on('error', () => {});
    // Passes the data on standard input: an argument could be too long, and every user can read it.
    child.stdin.end(text);
  });
}

function option([key, value]) {
  const name = key === 'delay' ? 'in' : key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  if (value === undefined || value === null || value === false) return [];
  if (REFUSED.includes(name)) {
    throw new QueueError(`the option "${name}" is not for programs that queue; nothing was queued`, 2);
  }
  if (value === true) return [`--${name}`];
  if (Array.isArray(value)) return value.map((item) => `--${name}=${item}`);
  if (name === 'meta') return Object.entries(value).map(([key, item]) => `--${name}=${key}=${item}`);
  if (value instanceof Date) return [`--${name}=${value.toISOString()}`];
  const isTime = ['in', 'expires', 'timeout', 'unique-for'].includes(name) && typeof value === 'number';
  return [`--${name}=${isTime ? `${Math.trunc(value)}s` : value}`];
}

function errorOf(status, said, signal) {
  try {
    const { error } = JSON.parse(said.trim().split('\n').pop());
    return new QueueError(error.message, status, error);
  } catch {
    return new QueueError(said.trim() || (signal ? `ended by ${signal}` : `exit status ${status}`), status);
  }
}

module.exports = { queue, QueueError };
