// Lets one handler function work both ways: started for each run, and kept running as a coprocess.
//
//   const { serve, Failure } = require('./taskqueue-handler.js');
//   serve(async (task) => {
//     task.progress(50, 'half of it');
//     if (!task.data.to) throw new Failure('invalid-data', 'nobody to send to', { retry: false });
//     return { sent: 1 };
//   }, { inFlight: 8 });
//
// What the function returns is the result, undefined for none. What it throws is a failure that is tried again; Failure says
// more. One file without dependencies: copy it beside the handler. docs/coprocess.md has the protocol. In a coprocess,
// console.log goes to standard error, because standard output belongs to the protocol. To call process.exit is a failure, and in a
// coprocess it ends all the runs it has: throw a Failure with an exitCode instead.
'use strict';

const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const { Console } = require('node:console');
const readline = require('node:readline');

const VERSION = 1;
const LONGEST_LINE = 1 << 20;
const LONGEST_MESSAGE = 10000;

class Failure extends Error {
  // retry: true or false; delay: seconds; exitCode: looked up in the rules of the class.
  constructor(code, message = '', { retry, delay, exitCode = 1 } = {}) {
    super(message || code);
    this.exitCode = exitCode;
    this.said = { code, message, retry, delay };
  }
}

// One run. What it reports starts its timeout again.
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

  // 0 to 100, and a line for people.
  progress(percent, message) {
    this.report({ progress: percent, message });
  }

  // The results so far; later ones replace them.
  result(value) {
    this.report({ result: value });
  }

  // Added to the metadata of the task when the run ends, however it ends; null takes a name away.
  meta(values) {
    this.report({ meta: values });
  }

  // A message for whoever follows.
  emit(name, data = null) {
    this.report({ event: name, data });
  }

  // It is still at work.
  heartbeat() {
    this.report({ heartbeat: true });
  }

  // Queues a child of this task and returns its id: await task.queue('mail.send', { to: 'ann' }, '--in', '5m').
  async queue(taskClass, data = {}, ...options) {
    return Number(await this.taskqueue(['queue', taskClass, '-', ...options], JSON.stringify(data)));
  }

  // What this command prints, with `input` as its standard input: await task.taskqueue(['wait', '17']). It acts for this task.
  taskqueue(args, input = '') {
    const env = { ...process.env };
    if (this.eventsSocket) Object.assign(env, { TASKQUEUE_EVENTS_SOCKET: this.eventsSocket, TASKQUEUE_EVENTS_TOKEN: this.token });
    return new Promise((resolve, reject) => {
      const child = execFile('taskqueue', args, { env }, (error, printed, said) => {
        if (error) reject(new Failure('taskqueue', (said.trim() || error.message).slice(0, LONGEST_MESSAGE)));
        else resolve(printed.trim());
      });
      child.stdin.on('error', () => {}); // It may end without having read its input.
      child.stdin.end(input);
    });
  }

  // Calls `hear(name, data)` with each message that is sent to this task. What was sent to this attempt before, or kept for it, comes
  // at once.
  onMessage(hear) {
    const begins = this.hear === undefined;
    this.hear = hear;
    if (begins) this.listen();
  }

  // An AbortSignal: the run is to end. Never aborted where the process is ended instead.
  get signal() {
    this.controller ??= new AbortController();
    return this.controller.signal;
  }

  get isCancelled() {
    return this.signal.aborted;
  }

  // Why the run is to end: cancel, timeout, shutdown or lease-lost; undefined while it may go on. Where the process gets
  // SIGTERM, the reason is there before the signal.
  get stopReason() {
    return this.controller?.signal.aborted ? this.controller.signal.reason : readStopReason();
  }

  cancel(reason = 'cancel') {
    this.signal; // Made if nobody has asked for it yet.
    this.controller.abort(reason);
  }
}

// Runs `handle` for the run of this process, or for all that a coprocess is given. A coprocess works for `inFlight` runs at
// once. With that above 1, or with `cancel`, the function must heed task.signal; otherwise the process is ended when its run
// must end.
function serve(handle, { inFlight = 1, cancel = false } = {}) {
  if (process.env.TASKQUEUE_PROTOCOL === 'coprocess') {
    new Coprocess(handle, inFlight, cancel).start();
  } else {
    workOnce(handle);
  }
}

// What the runner wrote into the file on its descriptor before TERM.
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

// The messages to the run of this process, as `taskqueue events` prints them. Returns what ends that.
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
  // Called by process.exit, and when nothing is left to wait for. The exit code stays as it is.
  process.on('exit', () => {
    if (!hasReturned) report({ error: { code: 'exit', message: 'the process ended before the handler returned' } });
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
    // What the handler prints must not get in between.
    Object.defineProperty(process, 'stdout', { get: () => process.stderr });
    globalThis.console = new Console(process.stderr);
    this.say(this.hello);
    process.stdin.on('data', (chunk) => this.hear(chunk));
    // Without a `drain` too: nobody will ask for anything more.
    process.stdin.on('end', () => process.stdin.destroy());
  }

  hear(chunk) {
    this.parts.push(chunk);
    if (!chunk.includes(10)) return;
    const lines = Buffer.concat(this.parts).toString('utf8').split('\n');
    // Cut at a line end, a character is never cut in two.
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

  // All that is said in one turn of the event loop goes with one write.
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
