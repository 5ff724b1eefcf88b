// Use one handler function in both ways: in a process for each run, and in a coprocess that keeps running.
//
//   const { serve, Failure } = require('./taskqueue-handler.js');
//   serve(async (task) => {
//     task.progress(50, 'half of it');
//     if (!task.data.to) throw new Failure('invalid-data', 'nobody to send to', { retry: false });
//     return { sent: 1 };
//   }, { inFlight: 8 });
//
// The return value of the function is the result; return undefined for no result. Anything that it throws fails the run, which is
// retried. Throw a Failure to set the code, the retry or the delay. This is one file without dependencies: copy it next to the
// handler. docs/coprocess.md describes the protocol. In a coprocess, console.log goes to standard error, because the protocol
// uses standard output. Do not call process.exit: it fails the run, and in a coprocess all runs in progress. Throw a Failure with
// an exitCode instead.
'use strict';

const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const { Console } = require('node:console');
const readline = require('node:readline');

const VERSION = 1;
const LONGEST_LINE = 1 << 20;
const LONGEST_MESSAGE = 10000;

class Failure extends Error {
  // retry: true or false; delay: seconds; exitCode: the rules of the class decide what it means.
  constructor(code, message = '', { retry, delay, exitCode = 1 } = {}) {
    super(message || code);
    this.exitCode = exitCode;
    this.said = { code, message, retry, delay };
  }
}

// One run. Each report restarts its timeout.
class Task {
  constructor(run, report, listen) {
    this.listen = listen;
    this.hear = undefined;
    this.id = run.task_id;
    this.runId = run.run_id;
    this.attempt = run.attempt;
    this.maxRetries = run.max_retries;
    this.taskClass = run.class;
    this.token = run.token;
    this.plannedOn = run.planned_on;
    this.deadline = run.deadline;
    this.data = run.data;
    this.eventsSocket = run.events_socket;
    this.report = report;
    this.controller = undefined;
  }

  // Reports progress: 0 to 100, and a message for people.
  progress(percent, message) {
    this.report({ progress: percent, message });
  }

  // Reports the results so far; later results replace them.
  result(value) {
    this.report({ result: value });
  }

  // Adds to the metadata of the task when the run ends, with any outcome; null removes a name.
  meta(values) {
    this.report({ meta: values });
  }

  // Sends a message to all processes that follow the events.
  emit(name, data = null) {
    this.report({ event: name, data });
  }

  // Reports that the handler is still working.
  heartbeat() {
    this.report({ heartbeat: true });
  }

  // Queues a child of this task and returns its id: await task.queue('mail.send', { to: 'ann' }, '--in', '5m').
  async queue(taskClass, data = {}, ...options) {
    return Number(await this.taskqueue(['queue', taskClass, '-', ...options], JSON.stringify(data)));
  }

  // Runs `taskqueue` with these arguments and this standard input, on behalf of this task, and resolves to its output: await
  // task.taskqueue(['wait', '17']).
  taskqueue(args, input = '') {
    const env = { ...process.env };
    if (this.eventsSocket) Object.assign(env, { TASKQUEUE_EVENTS_SOCKET: this.eventsSocket, TASKQUEUE_EVENTS_TOKEN: this.token });
    return new Promise((resolve, reject) => {
      const child = execFile('taskqueue', args, { env }, (error, printed, said) => {
        if (error) reject(new Failure('taskqueue', (said.trim() || error.message).slice(0, LONGEST_MESSAGE)));
        else resolve(printed.trim());
      });
      child.stdin.on('error', () => {}); // The program may exit without reading its input.
      child.stdin.end(input);
    });
  }

  // Calls `hear(name, data)` with each message to this task. Messages that were sent to this attempt earlier, or kept for it,
  // arrive at once.
  onMessage(hear) {
    const begins = this.hear === undefined;
    this.hear = hear;
    if (begins) this.listen();
  }

  // An AbortSignal that aborts if the run must end. It never aborts if the runner ends the process instead.
  get signal() {
    this.controller ??= new AbortController();
    return this.controller.signal;
  }

  get isCancelled() {
    return this.signal.aborted;
  }

  // Why the run must end: cancel, timeout, shutdown or lease-lost; undefined while it may continue. If the process gets
  // SIGTERM, the reason is available before the signal.
  get stopReason() {
    return this.controller?.signal.aborted ? this.controller.signal.reason : readStopReason();
  }

  cancel(reason = 'cancel') {
    this.signal; // Creates the controller if it does not exist yet.
    this.controller.abort(reason);
  }
}

// Runs `handle` for the run of this process, or for all runs of a coprocess. A coprocess processes `inFlight` runs at the same
// time. With `inFlight` above 1, or with `cancel`, the function must obey task.signal. Otherwise the runner ends the process when
// its run must end.
function serve(handle, { inFlight = 1, cancel = false } = {}) {
  if (process.env.TASKQUEUE_PROTOCOL === 'coprocess') {
    new Coprocess(handle, inFlight, cancel).start();
  } else {
    workOnce(handle);
  }
}

// Reads what the runner wrote to the file on the descriptor before TERM.
function readStopReason() {
  const buffer = Buffer.alloc(64);
  try {
    const count = fs.readSync(Number(process.env.TASKQUEUE_STOP_REASON_FD ?? '4'), buffer, 0, buffer.length, 0);
    return buffer.toString('utf8', 0, count).trim() || undefined;
  } catch {
    return undefined;
  }
}

function describe(error) {
  if (error instanceof Failure) return { exit: error.exitCode, error: error.said };
  const text = error instanceof Error ? error.message : String(error);
  process.stderr.write(`${error instanceof Error ? error.stack : text}\n`);
  return { exit: 1, error: { code: error?.name ?? 'Error', message: text.slice(0, LONGEST_MESSAGE) } };
}

function writeAll(fd, text) {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(fs.writeSync(fd, rest));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

// Passes the messages to the run of this process to task.hear, from `taskqueue events`. Returns a function that stops this.
function follow(task) {
  const args = ['events', `--task=${task.id}`, `--run=${task.runId}`, '--kind=message-to-task'];
  const child = spawn('taskqueue', [...args, '-n', '1000', '--follow', '--json'], { stdio: ['ignore', 'pipe', 'inherit'] });
  child.on('error', (error) => process.stderr.write(`the messages cannot be followed: ${error.message}\n`));
  readline.createInterface({ input: child.stdout }).on('line', (line) => {
    const { details } = JSON.parse(line);
    if (details.name !== undefined) task.hear(details.name, details.data ?? null);
  });
  return () => child.kill('SIGKILL');
}

async function workOnce(handle) {
  const variable = (name, otherwise = '') => process.env[`TASKQUEUE_${name}`] ?? otherwise;
  const events = Number(variable('EVENTS_FD', '3'));
  const report = (event) => writeAll(events, JSON.stringify(event) + '\n');
  let hasReturned = false;
  let endFollowing = () => {};
  // Called by process.exit, and when the event loop is empty. Another exit code fails the run without a report.
  process.on('exit', (exitCode) => {
    if (hasReturned || exitCode !== 0) return;
    report({ error: { code: 'exit', message: 'the process ended before the handler returned' } });
  });
  try {
    const run = {
      task_id: Number(variable('TASK_ID')),
      run_id: Number(variable('RUN_ID')),
      attempt: Number(variable('ATTEMPT', '1')),
      max_retries: Number(variable('MAX_RETRIES')),
      class: variable('CLASS'),
      token: variable('RUN_TOKEN'),
      planned_on: variable('PLANNED_ON'),
      deadline: variable('DEADLINE'),
      data: JSON.parse(fs.readFileSync(0, 'utf8')),
    };
    const task = new Task(run, report, () => {
      endFollowing = follow(task);
    });
    const result = await handle(task);
    if (result !== undefined) report({ result });
    hasReturned = true;
    endFollowing();
  } catch (error) {
    const said = describe(error);
    report({ error: said.error });
    hasReturned = true;
    process.exit(said.exit);
  }
}

class Coprocess {
  constructor(handle, inFlight, cancel) {
    this.handle = handle;
    const capabilities = ['ping', ...(cancel || inFlight > 1 ? ['cancel'] : [])];
    this.hello = { type: 'hello', version: VERSION, capabilities, max_in_flight: inFlight };
    this.tasks = new Map();
    this.parts = [];
    this.unwritten = '';
  }

  start() {
    // The handler must not print to the protocol's output.
    Object.defineProperty(process, 'stdout', { get: () => process.stderr });
    globalThis.console = new Console(process.stderr);
    this.say(this.hello);
    process.stdin.on('data', (chunk) => this.hear(chunk));
    // The end of the input has the same effect as `drain`: no more messages arrive.
    process.stdin.on('end', () => process.stdin.destroy());
  }

  hear(chunk) {
    this.parts.push(chunk);
    if (!chunk.includes(10)) return;
    const lines = Buffer.concat(this.parts).toString('utf8').split('\n');
    // Splitting at a line end never splits a character.
    this.parts = [Buffer.from(lines.pop())];
    for (const line of lines) this.take(JSON.parse(line));
  }

  take(message) {
    switch (message.type) {
      case 'run':
        this.run(message);
        break;
      case 'cancel':
        this.tasks.get(message.id)?.cancel(message.reason);
        break;
      case 'message':
        this.tasks.get(message.id)?.hear?.(message.name, message.data);
        break;
      case 'ping':
        this.say({ type: 'pong' });
        break;
      case 'drain':
        process.stdin.destroy();
        break;
    }
  }

  async run(message) {
    const { id } = message;
    const report = (event) => this.say({ type: 'progress', id, ...event });
    const task = new Task(message, report, () => this.say({ type: 'listen', id }));
    this.tasks.set(id, task);
    try {
      const result = await this.handle(task);
      this.say({ type: 'done', id, result });
    } catch (error) {
      this.say({ type: 'fail', id, ...describe(error) });
    }
    this.tasks.delete(id);
  }

  // Writes all messages of one turn of the event loop with one call.
  say(message) {
    const line = JSON.stringify(message);
    if (Buffer.byteLength(line) > LONGEST_LINE) throw new Error(`a message of more than ${LONGEST_LINE} bytes`);
    if (this.unwritten === '') setImmediate(() => this.flush());
    this.unwritten += line + '\n';
  }

  flush() {
    const text = this.unwritten;
    this.unwritten = '';
    writeAll(1, text);
  }
}

module.exports = { serve, Failure, Task };
