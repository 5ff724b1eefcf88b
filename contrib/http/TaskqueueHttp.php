<?php
// Queues tasks, waits for them and works on them over HTTP, with `taskqueue web`.
//
//   require 'TaskqueueHttp.php';
//   $queue = new TaskqueueHttp('http://127.0.0.1:8321', $token);
//   $id = $queue->queue('mail.send', ['to' => 'ann@example.org'], ['unique' => 'welcome-17', 'delay' => 600, 'priority' => 5]);
//   $ids = $queue->queueBatch([['class' => 'page.fetch', 'data' => 1], ['class' => 'page.fetch', 'data' => 2]]);
//   echo $queue->wait($id, 60)['task']['status'];
//
//   $queue->work(['mail.*'], fn (array $run) => send($run['data']));
//
// A request is repeated after a lost answer if that has no second effect: a task with a `unique` key is queued once (unless
// its on_conflict is "fail": a repeat would be refused), and the end of a run is recorded once. A claim is repeated, too:
// the runs of the lost answer are free again when their lease expires. Otherwise a lost answer is an exception with the code
// "lost". PHP has no threads: a handler that takes longer than the timeout of its task calls `heartbeat` meanwhile. This is
// one file without dependencies, for PHP 8.1 or newer: copy it into the application. For more, see docs/web.md#programs.

declare(strict_types=1);

/** A request failed. `$kind` and `$detail` are the code and the detail of the problem; the code of the exception is the HTTP status, or 0 without an answer. */
final class TaskqueueHttpException extends RuntimeException
{
    public function __construct(
        int $status,
        public readonly string $kind,
        public readonly string $detail,
        public readonly int $retryAfterSecs = 0,
    ) {
        parent::__construct("$kind: $detail", $status);
    }

    /** Whether the next try may succeed: there was no answer, or the server could not do it. */
    public function mayPass(): bool
    {
        return in_array($this->getCode(), [0, 429], true) || $this->getCode() >= 500;
    }
}

/** Thrown by a handler: its task has failed with this error. */
final class TaskqueueTaskFailed extends RuntimeException
{
    public readonly array $error;

    public function __construct(string $code, string $message = '', bool $retry = true, ?int $delaySecs = null)
    {
        parent::__construct($message);
        $this->error = ['code' => $code, 'message' => $message, 'retry' => $retry, 'delay_secs' => $delaySecs];
    }
}

/** Thrown by a handler: returns the run. The task is due at once, for this login only if `$reject` is false. */
final class TaskqueueTaskReleased extends RuntimeException
{
    public function __construct(string $reason = '', public readonly bool $reject = true)
    {
        parent::__construct($reason);
    }
}

/** A server and a login. */
final class TaskqueueHttp
{
    /** Waits between the tries of a request, in milliseconds. */
    private const PAUSES = [250, 500, 1000, 2000, 4000];
    /** The longest wait that the server accepts, and how long an answer may take. */
    private const LONGEST_WAIT_SECS = 50;
    private const ANSWER_SECS = 70;
    /** The statuses of answers that refuse what was sent: it is wrong or too large. */
    private const REFUSED = [400, 413, 422];

    private readonly string $base;

    public function __construct(string $address, private readonly string $token)
    {
        $this->base = rtrim($address, '/') . '/api/v1/';
    }

    /**
     * Queues a task and returns its id. If a live task has the `unique` key already, returns the id of that task. The options are
     * the keys of a line of `taskqueue queue --batch`: unique, on_conflict, priority, at, timeout, after and so on; `delay` is
     * `in`, in seconds.
     */
    public function queue(string $class, mixed $data = new stdClass(), array $options = []): int
    {
        if (isset($options['delay'])) {
            $options['in'] = "{$options['delay']}s";
            unset($options['delay']);
        }
        return $this->queueBatch([['class' => $class, 'data' => $data] + $options])[0];
    }

    /** Queues tasks, all or none, and returns their ids. A task is an array with the keys of a line of a batch. */
    public function queueBatch(array $tasks): array
    {
        $lines = implode('', array_map(fn (array $task): string => self::json($task) . "\n", $tasks));
        $isOnce = fn (array $task): bool => isset($task['unique']) && ($task['on_conflict'] ?? '') !== 'fail';
        $canRepeat = array_filter($tasks, $isOnce) === $tasks;
        return array_column($this->call('tasks', $lines, 'application/x-ndjson', $canRepeat)['tasks'], 'id');
    }

    /** Returns what `status ID --json` prints; waits up to `$waitSecs`, at most 50, until the task has finished. */
    public function task(int $id, int $waitSecs = 0): array
    {
        return $this->call("tasks/$id?wait_secs=$waitSecs");
    }

    /** Waits until the task has finished, or for this time; returns what `status ID --json` prints. */
    public function wait(int $id, float $secs = INF): array
    {
        $end = microtime(true) + $secs;
        do {
            $left = $end - microtime(true);
            $document = $this->task($id, (int) max(0, min($left, self::LONGEST_WAIT_SECS)));
        } while (!$document['task']['is_settled'] && $left > 0);
        return $document;
    }

    /**
     * Claims runs of these classes; waits up to `wait_secs`, at most 50, for the first. The choice can also have `count`, `task`,
     * `unique`, `limit_key` and `tag`. If the answer is lost, its runs are free again when their leases expire.
     */
    public function claim(array $classes = [], array $choice = []): array
    {
        return $this->post('claims', ['class' => $classes] + $choice)['runs'];
    }

    /** Renews the lease of a claimed run. If the answer has `cancel_requested`, stop working. */
    public function heartbeat(array $run, ?int $percents = null, ?string $message = null): array
    {
        return $this->end('heartbeat', $run, ['percents' => $percents, 'message' => $message]);
    }

    /** Ends a claimed run: it has succeeded. */
    public function resolve(array $run, mixed $results = null): array
    {
        return $this->end('resolve', $run, ['results' => $results]);
    }

    /** Ends a claimed run: it has failed. The error has a `code`, and may have `message`, `retry` and `delay_secs`. */
    public function fail(array $run, array $error): array
    {
        return $this->end('resolve', $run, ['error' => $error]);
    }

    /** Returns a claimed run without an outcome. With `$reject`, this login never gets the task again. */
    public function release(array $run, string $reason = '', bool $reject = true): array
    {
        return $this->end('release', $run, ['reason' => $reason, 'reject' => $reject]);
    }

    /**
     * Claims runs one by one, and calls `$handler($run)`, until `$stop()` returns true. The run has `data`, `class`, `task_id`,
     * `attempt` and so on; the handler returns the results, or throws.
     */
    public function work(array $classes, callable $handler, ?callable $stop = null, int $waitSecs = self::LONGEST_WAIT_SECS): void
    {
        while ($stop === null || !$stop()) {
            try {
                $runs = $this->claim($classes, ['wait_secs' => $waitSecs]);
            } catch (TaskqueueHttpException $error) {
                if (!$error->mayPass()) {
                    throw $error;
                }
                error_log("cannot claim: {$error->getMessage()}");
                sleep(5);
                continue;
            }
            foreach ($runs as $run) {
                $this->handle($run, $handler);
            }
        }
    }

    private function handle(array $run, callable $handler): void
    {
        $codeIfRefused = 'refused-answer';
        try {
            $results = $handler($run);
            // What is no JSON fails the task.
            self::json($results);
            $end = fn () => $this->resolve($run, $results);
            $codeIfRefused = 'invalid-results';
        } catch (TaskqueueTaskFailed $failed) {
            $end = fn () => $this->fail($run, ['message' => self::text($failed->getMessage())] + $failed->error);
        } catch (TaskqueueTaskReleased $released) {
            $end = fn () => $this->release($run, self::text($released->getMessage()), $released->reject);
        } catch (Throwable $error) {
            $end = fn () => $this->fail($run, ['code' => $error::class, 'message' => self::text($error->getMessage())]);
        }
        try {
            $this->finish($run, $end, $codeIfRefused);
        } catch (TaskqueueHttpException $error) {
            // If the lease has expired, another process may have the task.
            error_log("the end of run {$run['run_id']} is not recorded: {$error->getMessage()}");
        }
    }

    private function finish(array $run, callable $end, string $codeIfRefused): void
    {
        try {
            $end();
        } catch (TaskqueueHttpException $error) {
            if (!in_array($error->getCode(), self::REFUSED, true)) {
                throw $error;
            }
            // The next attempt would end the same way.
            $this->fail($run, ['code' => $codeIfRefused, 'message' => $error->detail, 'retry' => false]);
        }
    }

    private function end(string $verb, array $run, array $body): array
    {
        return $this->post("runs/{$run['run_id']}/$verb", ['token' => $run['token']] + $body);
    }

    private function post(string $path, array $body): array
    {
        return $this->call($path, self::json($body), 'application/json');
    }

    /** Sends a request. It is repeated if it was not carried out, or if `$canRepeat`. */
    private function call(string $path, ?string $body = null, string $type = '', bool $canRepeat = true): array
    {
        for ($tries = 0; ; $tries++) {
            $pause = self::PAUSES[$tries] ?? 0;
            try {
                return $this->send($path, $body, $type);
            } catch (TaskqueueHttpException $error) {
                $isUndone = in_array($error->kind, ['busy', 'too-many', 'connect'], true);
                if ($tries === count(self::PAUSES) || !$error->mayPass() || !($isUndone || $canRepeat)) {
                    throw $error;
                }
                $pause = max($pause, $error->retryAfterSecs * 1000);
            }
            usleep($pause * 1000);
        }
    }

    private function send(string $path, ?string $body, string $type): array
    {
        $headers = "Authorization: Bearer $this->token\r\nConnection: close\r\n" . ($type === '' ? '' : "Content-Type: $type\r\n");
        $method = $body === null ? 'GET' : 'POST';
        $http = ['method' => $method, 'header' => $headers, 'content' => $body ?? '', 'timeout' => self::ANSWER_SECS, 'ignore_errors' => true];
        $stream = @fopen($this->base . $path, 'r', false, stream_context_create(['http' => $http]));
        if ($stream === false) {
            $why = error_get_last()['message'] ?? 'no connection';
            throw new TaskqueueHttpException(0, str_contains($why, 'Connection refused') ? 'connect' : 'lost', $why);
        }
        $text = (string) stream_get_contents($stream);
        $heads = stream_get_meta_data($stream)['wrapper_data'] ?? [];
        fclose($stream);
        $status = (int) (explode(' ', $heads[0] ?? '')[1] ?? 0);
        $answer = json_decode($text, true, 512, JSON_BIGINT_AS_STRING);
        if ($status >= 200 && $status < 300 && is_array($answer)) {
            return $answer;
        }
        if ($status < 400) {
            throw new TaskqueueHttpException(0, 'lost', 'the answer was lost');
        }
        // A proxy answers in its own words.
        $retryAfter = (int) preg_replace('/^retry-after: /i', '', current(preg_grep('/^retry-after: /i', $heads)) ?: '0');
        throw new TaskqueueHttpException($status, $answer['code'] ?? 'proxy', $answer['detail'] ?? $heads[0], $retryAfter);
    }

    /** Returns the text as UTF-8: messages of drivers may be in another encoding. */
    private static function text(string $text): string
    {
        return json_decode(json_encode($text, JSON_INVALID_UTF8_SUBSTITUTE));
    }

    private static function json(mixed $data): string
    {
        return json_encode($data, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION);
    }
}
