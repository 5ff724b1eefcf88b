// Queues tasks, waits for them and works on them over HTTP, with `taskqueue web`.
//
//   const { Taskqueue, TaskFailed, TaskReleased, TaskqueueError } = require('./taskqueue-http.js');
//
//   const queue = new Taskqueue('http://127.0.0.1:8321', token);
//   const id = await queue.queue('mail.send', { to: 'ann@example.org' }, { unique: 'welcome-17', delay: 600, priority: 5 });
//   const ids = await queue.queueBatch([{ class: 'page.fetch', data: 1 }, { class: 'page.fetch', data: 2 }]);
//   console.log((await queue.wait(id, 60)).task.status);
//
//   await queue.work(['mail.*'], async (run) => send(run.data));
//
// A request is repeated after a lost answer if that has no second effect: a task with a `unique` key is queued once (unless
// its on_conflict is "fail": a repeat would be refused), and the end of a run is recorded once. A claim is repeated, too:
// the runs of the lost answer are free again when their lease expires. Otherwise a lost answer is an error with the code
// "lost". This is one file without dependencies, for Node 18 or newer: copy it into the application. For more, see
// docs/web.md#programs.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');

// Waits between the tries of a request, in milliseconds.
const PAUSES = [250, 500, 1000, 2000, 4000];
// The longest wait that the server accepts, and how long an answer may take.
const LONGEST_WAIT_SECS = 50;
const ANSWER_SECS = 70;
// How often the lease is renewed at least; a cancel is noticed that soon.
const BEAT_SECS = 15;
// The statuses of answers that refuse what was sent: it is wrong or too large.
const REFUSED = [400, 413, 422];

// A request failed. code and detail are those of the problem; status is the HTTP status, or 0 without an answer.
class TaskqueueError extends Error {
  constructor(status, code, detail, retryAfterSecs = 0) {
    super(`${code}: ${detail}`);
    this.name = 'TaskqueueError';
    Object.assign(this, { status, code, detail, retryAfterSecs });
  }
}

// Thrown by a handler: its task has failed with this error.
class TaskFailed extends Error {
  constructor(code, message = '', { retry = true, delaySecs } = {}) {
    super(message);
    this.error = { code, message: this.message, retry, delay_secs: delaySecs };
  }
}

// Thrown by a handler: returns the run. The task is due at once, for this login only if `reject` is false.
class TaskReleased extends Error {
  constructor(reason = '', reject = true) {
    super(reason);
    this.reject = reject;
  }
}

// A server and a login.
class Taskqueue {
  #base;
  #token;

  constructor(address, token) {
    this.#base = `${address.replace(/\/$/, '')}/api/v1/`;
    this.#token = token;
  }

  // Queues a task and resolves to its id. If a live task has the `unique` key already, resolves to the id of that task. The
  // options are the keys of a line of `taskqueue queue --batch`: unique, on_conflict, priority, at, timeout, after and so on;
  // `delay` is `in`, in seconds.
  async queue(taskClass, data = {}, { delay, ...options } = {}) {
    const due = delay === undefined ? {} : { in: `${delay}s` };
    return (await this.queueBatch([{ class: taskClass, data, ...due, ...options }]))[0];
  }

  // Queues tasks, all or none, and resolves to their ids. A task is an object with the keys of a line of a batch.
  async queueBatch(tasks) {
    const lines = tasks.map((task) => `${JSON.stringify(task)}\n`).join('');
    const canRepeat = tasks.every((task) => task.unique != null && task.on_conflict !== 'fail');
    const answer = await this.#call('tasks', lines, 'application/x-ndjson', canRepeat);
    return answer.tasks.map((task) => task.id);
  }

  // Resolves to what `status ID --json` prints; waits up to `waitSecs`, at most 50, until the task has finished.
  async task(id, waitSecs = 0) {
    return this.#call(`tasks/${id}?wait_secs=${Math.trunc(waitSecs)}`);
  }

  // Waits until the task has finished, or for this time; resolves to what `status ID --json` prints.
  async wait(id, secs = Infinity) {
    const end = performance.now() + secs * 1000;
    for (;;) {
      const left = (end - performance.now()) / 1000;
      const document = await this.task(id, Math.max(0, Math.min(left, LONGEST_WAIT_SECS)));
      if (document.task.is_settled || left <= 0) return document;
    }
  }

  // Claims up to `count` runs of these classes; waits up to `wait_secs`, at most 50, for the first. The choice can also have
  // `task`, `unique`, `limit_key` and `tag`. If the answer is lost, its runs are free again when their leases expire.
  async claim(classes = [], choice = {}) {
    return (await this.#post('claims', { class: classes, ...choice })).runs;
  }

  // Renews the lease of a claimed run. If the answer has `cancel_requested`, stop working.
  async heartbeat(run, percents, message) {
    return this.#end('heartbeat', run, { percents, message });
  }

  // Ends a claimed run: it has succeeded.
  async resolve(run, results = null) {
    return this.#end('resolve', run, { results });
  }

  // Ends a claimed run: it has failed. `error` has a `code`, and may have `message`, `retry` and `delay_secs`.
  async fail(run, error) {
    return this.#end('resolve', run, { error });
  }

  // Returns a claimed run without an outcome. With `reject`, this login never gets the task again.
  async release(run, reason = '', reject = true) {
    return this.#end('release', run, { reason, reject });
  }

  // Claims runs one by one, and calls `handler(run)`, until `stop`, an AbortSignal, is aborted. The run has `data`, `class`,
  // `task_id`, `attempt` and so on; the handler returns the results, or throws. Meanwhile a timer renews the lease, and aborts
  // `run.stop`, an AbortSignal, when the handler should stop, and throw.
  async work(classes, handler, { stop, waitSecs = LONGEST_WAIT_SECS } = {}) {
    while (!stop?.aborted) {
      let runs;
      try {
        runs = await this.claim(classes, { wait_secs: waitSecs });
      } catch (error) {
        if (!mayPass(error)) throw error;
        console.warn(`cannot claim: ${error.message}`);
        await sleep(5000);
        continue;
      }
      for (const run of runs) await this.#handle(run, handler);
    }
  }

  async #handle(run, handler) {
    const stop = new AbortController();
    const pause = Math.min(run.timeout_secs / 3, BEAT_SECS) * 1000;
    const beat = setInterval(() => this.#beat(run, stop), pause);
    const [end, codeIfRefused] = await Promise.resolve(Object.assign(run, { stop: stop.signal }))
      .then(handler)
      .then((results) => {
        // What is no JSON fails the task.
        JSON.stringify(results);
        return [() => this.resolve(run, results), 'invalid-results'];
      })
      .catch((error) => {
        let end = () => this.fail(run, { code: error?.name || 'Error', message: String(error?.message ?? error) });
        if (error instanceof TaskReleased) end = () => this.release(run, error.message, error.reject);
        if (error instanceof TaskFailed) end = () => this.fail(run, error.error);
        return [end, 'refused-answer'];
      })
      .finally(() => clearInterval(beat));
    await end()
      .catch((error) => {
        if (!REFUSED.includes(error.status)) throw error;
        // The next attempt would end the same way.
        return this.fail(run, { code: codeIfRefused, message: error.detail, retry: false });
      })
      // If the lease has expired, another process may have the task.
      .catch((error) => console.warn(`the end of run ${run.run_id} is not recorded: ${error.message}`));
  }

  async #beat(run, stop) {
    try {
      if ((await this.heartbeat(run)).cancel_requested) stop.abort();
    } catch (error) {
      if (!mayPass(error)) stop.abort();
    }
  }

  async #end(verb, run, body) {
    return this.#post(`runs/${run.run_id}/${verb}`, { token: run.token, ...body });
  }

  async #post(path, body) {
    return this.#call(path, JSON.stringify(body), 'application/json');
  }

  // Sends a request. It is repeated if it was not carried out, or if `canRepeat`.
  async #call(path, body, type, canRepeat = true) {
    for (let tries = 0; ; tries++) {
      let pause = PAUSES[tries];
      try {
        return await this.#send(path, body, type);
      } catch (error) {
        const isUndone = ['busy', 'too-many', 'connect'].includes(error.code);
        if (tries === PAUSES.length || !mayPass(error) || !(isUndone || canRepeat)) throw error;
        pause = Math.max(pause, error.retryAfterSecs * 1000);
      }
      await sleep(pause);
    }
  }

  async #send(path, body, type) {
    const headers = { Authorization: `Bearer ${this.#token}`, ...(type && { 'Content-Type': type }) };
    const method = body === undefined ? 'GET' : 'POST';
    const signal = AbortSignal.timeout(ANSWER_SECS * 1000);
    let answer;
    let text;
    try {
      answer = await fetch(this.#base + path, { method, headers, body, signal });
      text = await answer.text();
    } catch (error) {
      const cause = error.cause ?? error;
      throw new TaskqueueError(0, cause.code === 'ECONNREFUSED' ? 'connect' : 'lost', cause.message);
    }
    if (answer.ok) return JSON.parse(text);
    throw problemOf(answer, text);
  }
}

function problemOf(answer, text) {
  try {
    const { code, detail } = JSON.parse(text);
    return new TaskqueueError(answer.status, code, detail, Number(answer.headers.get('retry-after')));
  } catch {
    // A proxy answers in its own words.
    return new TaskqueueError(answer.status, 'proxy', answer.statusText);
  }
}

// Without an answer, or with one that says that the server could not do it, the next try may succeed.
function mayPass(error) {
  return error instanceof TaskqueueError && ([0, 429].includes(error.status) || error.status >= 500);
}

module.exports = { Taskqueue, TaskFailed, TaskReleased, TaskqueueError };
