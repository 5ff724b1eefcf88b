<?php
// Use one handler function in both ways: in a process for each run, and in a coprocess that keeps running.
//
//   require __DIR__ . '/TaskqueueHandler.php';
//   use Taskqueue\Failure;
//   use Taskqueue\Task;
//   Taskqueue\serve(function (Task $task): mixed {
//       $task->progress(50, 'half of it');
//       if (empty($task->data['to'])) {
//           throw new Failure('invalid-data', 'nobody to send to', retry: false);
//       }
//       return ['sent' => 1];
//   });
//
// The return value of the function is the result; return null for no result. Anything that it throws fails the run, which is
// retried. Throw a Failure to set the code, the retry or the delay. This is one file without dependencies: copy it next to the
// handler. docs/coprocess.md describes the protocol. In a coprocess, echo goes to standard error, because the protocol uses
// standard output. Do not call exit: it fails the run, and in a coprocess all runs in progress. Throw a Failure with an exitCode
// instead.

namespace Taskqueue;

const VERSION = 1;
const LONGEST_LINE = 1 << 20;
const LONGEST_MESSAGE = 10000;

/** Describes why a run fails. The rules of the class decide what exitCode means; delay is in seconds. */
final class Failure extends \Exception
{
    public readonly array $said;

    public function __construct(
        string $code,
        string $message = '',
        ?bool $retry = null,
        ?int $delay = null,
        public readonly int $exitCode = 1,
    ) {
        parent::__construct($message === '' ? $code : $message);
        $this->said = ['code' => $code, 'message' => $message, 'retry' => $retry, 'delay' => $delay];
    }
}

/** A message to a task. */
final class Message
{
    public function __construct(public readonly string $name, public readonly mixed $data)
    {
    }
}

/** One run. Each report restarts its timeout. */
final class Task
{
    public readonly int $id;
    public readonly int $runId;
    public readonly int $attempt;
    public readonly int $maxRetries;
    public readonly string $taskClass;
    public readonly string $token;
    public readonly string $plannedOn;
    public readonly string $deadline;
    /** Objects as arrays with keys. */
    public readonly mixed $data;
    private readonly ?string $eventsSocket;

    public function __construct(
        array $run,
        private \Closure $report,
        private \Closure $stopReason,
        private \Closure $nextMessage,
    ) {
        $this->id = $run['task_id'];
        $this->runId = $run['run_id'];
        $this->attempt = $run['attempt'];
        $this->maxRetries = $run['max_retries'];
        $this->taskClass = $run['class'];
        $this->token = $run['token'];
        $this->plannedOn = $run['planned_on'];
        $this->deadline = $run['deadline'];
        $this->data = $run['data'];
        $this->eventsSocket = $run['events_socket'] ?? null;
    }

    /** Reports progress: 0 to 100, and a message for people. */
    public function progress(int $percent, ?string $message = null): void
    {
        ($this->report)(['progress' => $percent, 'message' => $message]);
    }

    /** Reports the results so far; later results replace them. */
    public function result(mixed $value): void
    {
        ($this->report)(['result' => $value]);
    }

    /** Adds to the metadata of the task when the run ends, with any outcome; null removes a name. */
    public function meta(array $values): void
    {
        ($this->report)(['meta' => (object) $values]);
    }

    /** Sends a message to all processes that follow the events. */
    public function emit(string $name, mixed $data = null): void
    {
        ($this->report)(['event' => $name, 'data' => $data]);
    }

    /** Reports that the handler is still working. */
    public function heartbeat(): void
    {
        ($this->report)(['heartbeat' => true]);
    }

    /** Queues a child of this task and returns its id: $task->queue('mail.send', ['to' => 'ann'], '--in', '5m'). */
    public function queue(string $taskClass, mixed $data = new \stdClass(), string ...$options): int
    {
        return (int) $this->command(['queue', $taskClass, '-', ...$options], toJson($data));
    }

    /** Runs `taskqueue` with these arguments and this standard input, on behalf of this task, and returns its output. */
    public function command(array $arguments, string $input = ''): string
    {
        $environment = getenv();
        if ($this->eventsSocket !== null) {
            $environment['TASKQUEUE_EVENTS_SOCKET'] = $this->eventsSocket;
            $environment['TASKQUEUE_EVENTS_TOKEN'] = $this->token;
        }
        $files = array_map(fn(): mixed => tmpfile(), range(0, 2));
        fwrite($files[0], $input);
        rewind($files[0]);
        $process = proc_open(['taskqueue', ...$arguments], $files, $pipes, null, $environment);
        $code = $process === false ? 127 : proc_close($process);
        [$printed, $said] = array_map(fn($file): string => rewind($file) ? stream_get_contents($file) : '', array_slice($files, 1));
        if ($code !== 0) {
            throw new Failure('taskqueue', substr(trim($said), 0, LONGEST_MESSAGE));
        }
        return trim($printed);
    }

    /**
     * Returns the next message to this task; null if none arrives within `$wait` seconds, or if the run must end.
     *
     * The first call begins to listen. It also receives messages that were sent to this attempt earlier, or kept for it.
     */
    public function nextMessage(float $wait = 0): ?Message
    {
        return ($this->nextMessage)(microtime(true) + $wait);
    }

    /** Returns true if the run must end: clean up, then return or throw. If the process gets SIGTERM, handle the signal. */
    public function isCancelled(): bool
    {
        return $this->stopReason() !== null;
    }

    /**
     * Returns why the run must end: cancel, timeout, shutdown or lease-lost; null while it may continue. If the process gets
     * SIGTERM, the reason is available before the signal.
     */
    public function stopReason(): ?string
    {
        return ($this->stopReason)();
    }
}

/** Implement this in a PHP class whose name is a task class: run-task.php creates an instance for each run. */
interface ITaskQueueRunner
{
    public function processTaskQueueRun(TaskQueueRun $run): void;
}

/**
 * A run with the names of its columns. You can set PercentsCompleted, ProgressMessage and Results; setting one saves it.
 *
 * @property int $PercentsCompleted 0 to 100
 * @property string $ProgressMessage a message for people
 * @property mixed $Results the results so far
 */
final class TaskQueueRun
{
    public readonly int $Id;
    public readonly int $TaskQueueId;
    public readonly int $Attempt;
    public readonly string $TaskClass;
    /** Objects as arrays with keys. */
    public readonly mixed $TaskData;
    private array $saved = ['PercentsCompleted' => 0, 'ProgressMessage' => '', 'Results' => null];

    public function __construct(public readonly Task $task)
    {
        $this->Id = $task->runId;
        $this->TaskQueueId = $task->id;
        $this->Attempt = $task->attempt;
        $this->TaskClass = $task->taskClass;
        $this->TaskData = $task->data;
    }

    public function __get(string $name): mixed
    {
        return $this->saved[$name] ?? null;
    }

    public function __set(string $name, mixed $value): void
    {
        if (!array_key_exists($name, $this->saved)) {
            throw new \LogicException("a run has no $name that can be set");
        }
        $this->saved[$name] = $value;
        if ($name === 'Results') {
            $this->task->result($value);
        } else {
            $this->task->progress((int) $this->saved['PercentsCompleted'], (string) $this->saved['ProgressMessage']);
        }
    }
}

/**
 * Runs `$handle` for the run of this process, or for all runs of a coprocess.
 *
 * A coprocess with `$inFlight` above 1 receives up to that number of runs ahead, and processes them one after another, which is
 * faster for short runs. With `$inFlight` above 1, or with `$cancel`, the handler must check isCancelled() regularly. Otherwise
 * the runner ends the process when its run must end.
 */
function serve(callable $handle, int $inFlight = 1, bool $cancel = false): void
{
    if (getenv('TASKQUEUE_PROTOCOL') === 'coprocess') {
        (new Coprocess($handle, $inFlight, $cancel))->work();
    } else {
        workOnce($handle);
    }
}

function toJson(mixed $value): string
{
    $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE
        | JSON_PRESERVE_ZERO_FRACTION | JSON_INVALID_UTF8_SUBSTITUTE;
    return json_encode($value, $flags);
}

/** Returns the exit code and the error for what a handler threw. */
function describe(\Throwable $thrown): array
{
    if ($thrown instanceof Failure) {
        return [$thrown->exitCode, $thrown->said];
    }
    // If an exception has a code, such as that of a mail server, this is the error code.
    $code = (string) $thrown->getCode();
    // The message comes last: if a run has no other message, its last line is shown.
    fwrite(\STDERR, $thrown->getTraceAsString() . "\n" . $thrown::class . ': ' . $thrown->getMessage() . "\n");
    $message = substr($thrown->getMessage(), 0, LONGEST_MESSAGE);
    return [1, ['code' => in_array($code, ['', '0'], true) ? $thrown::class : $code, 'message' => $message]];
}

function writeAll($stream, string $text): void
{
    while ($text !== '') {
        $count = fwrite($stream, $text);
        if ($count === false) {
            throw new \RuntimeException('the runner does not listen any more');
        }
        $text = substr($text, $count);
    }
}

/** Reads what the runner wrote to the file on the descriptor before TERM. */
function readStopReason(): ?string
{
    $file = @fopen('php://fd/' . (getenv('TASKQUEUE_STOP_REASON_FD') ?: '4'), 'r');
    $reason = $file === false ? '' : trim((string) stream_get_contents($file, 64, 0));
    return $reason === '' ? null : $reason;
}

/** Waits until the stream can be read. Returns false after `$until`. */
function canRead(mixed $stream, float $until): bool
{
    [$readable, $none] = [[$stream], null];
    $left = max(0, $until - microtime(true));
    $seconds = (int) $left;
    // A signal ends the wait.
    return @stream_select($readable, $none, $none, $seconds, (int) (($left - $seconds) * 1e6)) > 0;
}

/** The messages to the run of this process, read from `taskqueue events`. */
final class Followed
{
    private mixed $process = null;
    private mixed $output = null;
    private string $rest = '';
    private array $messages = [];

    public function __construct(private int $taskId, private int $runId)
    {
    }

    public function next(float $until): ?Message
    {
        if ($this->process === null) {
            $command = ['taskqueue', 'events', "--task=$this->taskId", "--run=$this->runId", '--kind=message-to-task'];
            $files = [['file', '/dev/null', 'r'], ['pipe', 'w']];
            $this->process = proc_open([...$command, '-n', '1000', '--follow', '--json'], $files, $pipes);
            $this->output = $pipes[1];
            stream_set_read_buffer($this->output, 0);
        }
        while ($this->messages === []) {
            if (!canRead($this->output, $until)) {
                return null;
            }
            $chunk = fread($this->output, 1 << 16);
            if ($chunk === false || $chunk === '') {
                throw new Failure('taskqueue', 'the messages cannot be followed: `taskqueue events` has ended');
            }
            $lines = explode("\n", $this->rest . $chunk);
            $this->rest = array_pop($lines);
            foreach ($lines as $line) {
                $details = json_decode($line, true, 512, JSON_THROW_ON_ERROR)['details'];
                if (isset($details['name'])) {
                    $this->messages[] = new Message($details['name'], $details['data'] ?? null);
                }
            }
        }
        return array_shift($this->messages);
    }

    public function end(): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process, 9);
            proc_close($this->process);
        }
    }
}

function workOnce(callable $handle): void
{
    $variable = fn(string $name): string => (string) getenv("TASKQUEUE_$name");
    $events = fopen('php://fd/' . ($variable('EVENTS_FD') ?: '3'), 'w');
    $report = fn(array $event) => writeAll($events, toJson($event) . "\n");
    $hasReturned = false;
    // Also called by exit and after a fatal error. The exit code does not change.
    register_shutdown_function(function () use ($report, &$hasReturned): void {
        if (!$hasReturned) {
            $fatal = error_get_last()['message'] ?? null;
            $message = $fatal ?? 'the handler called exit before it returned';
            $report(['error' => ['code' => $fatal === null ? 'exit' : 'fatal', 'message' => substr($message, 0, LONGEST_MESSAGE)]]);
        }
    });
    try {
        $run = [
            'task_id' => (int) $variable('TASK_ID'),
            'run_id' => (int) $variable('RUN_ID'),
            'attempt' => (int) $variable('ATTEMPT'),
            'max_retries' => (int) $variable('MAX_RETRIES'),
            'class' => $variable('CLASS'),
            'token' => $variable('RUN_TOKEN'),
            'planned_on' => $variable('PLANNED_ON'),
            'deadline' => $variable('DEADLINE'),
            'data' => json_decode(stream_get_contents(\STDIN), true, 512, JSON_THROW_ON_ERROR),
        ];
        $followed = new Followed($run['task_id'], $run['run_id']);
        $result = $handle(new Task($run, $report, readStopReason(...), $followed->next(...)));
        if ($result !== null) {
            $report(['result' => $result]);
        }
        $followed->end();
        $hasReturned = true;
    } catch (\Throwable $thrown) {
        [$exit, $said] = describe($thrown);
        $report(['error' => $said]);
        $hasReturned = true;
        exit($exit);
    }
}

final class Coprocess
{
    private \Closure $handle;
    private array $hello;
    private $input;
    private $output;
    /** Replacements of standard input and output; closed when this object is destroyed. */
    private array $instead;
    private string $rest = '';
    private array $waiting = [];
    private array $cancelled = [];
    /** Messages of the runs that listen. */
    private array $messages = [];
    private string $unwritten = '';
    private bool $isOver = false;

    public function __construct(callable $handle, int $inFlight, bool $cancel)
    {
        $this->handle = $handle(...);
        $capabilities = $cancel || $inFlight > 1 ? ['cancel'] : [];
        $this->hello = [
            'type' => 'hello',
            'version' => VERSION,
            'capabilities' => $capabilities,
            'max_in_flight' => $inFlight,
        ];
        // The handler and the programs that it starts must not write to the protocol's output or read its input. A new
        // descriptor gets the lowest free number.
        [$this->input, $this->output] = [fopen('php://fd/0', 'r'), fopen('php://fd/1', 'w')];
        fclose(\STDIN);
        $this->instead = [fopen('/dev/null', 'r')];
        fclose(\STDOUT);
        $this->instead[] = fopen('php://fd/2', 'w');
        stream_set_read_buffer($this->input, 0);
    }

    public function work(): void
    {
        $this->say($this->hello);
        $this->flush();
        while ($this->waiting !== [] || $this->read()) {
            // Processes the runs one after another, then sends the answers together.
            while ($this->waiting !== []) {
                [$messages, $this->waiting] = [$this->waiting, []];
                foreach ($messages as $message) {
                    $this->run($message);
                }
            }
            $this->flush();
        }
    }

    private function run(array $message): void
    {
        $id = $message['id'];
        $report = function (array $event) use ($id): void {
            $this->say(['type' => 'progress', 'id' => $id] + $event);
            $this->flush();
        };
        try {
            if (isset($this->cancelled[$id])) {
                throw new Failure('cancelled', 'it had not begun');
            }
            $result = ($this->handle)(new Task(
                $message,
                $report,
                fn(): ?string => $this->stopReason($id),
                fn(float $until): ?Message => $this->nextMessage($id, $until),
            ));
            $answer = ['type' => 'done', 'id' => $id];
            $this->say($result === null ? $answer : $answer + ['result' => $result]);
        } catch (\Throwable $thrown) {
            [$exit, $said] = describe($thrown);
            $this->say(['type' => 'fail', 'id' => $id, 'exit' => $exit, 'error' => $said]);
        } finally {
            unset($this->cancelled[$id], $this->messages[$id]);
        }
    }

    private function nextMessage(string $id, float $until): ?Message
    {
        if (!isset($this->messages[$id])) {
            $this->messages[$id] = [];
            $this->say(['type' => 'listen', 'id' => $id]);
            $this->flush();
        }
        while ($this->messages[$id] === [] && !isset($this->cancelled[$id])) {
            if (!canRead($this->input, $until) || !$this->read()) {
                return null;
            }
        }
        return array_shift($this->messages[$id]);
    }

    private function takeMessage(array $message): void
    {
        if (isset($this->messages[$message['id']])) {
            $this->messages[$message['id']][] = new Message($message['name'], $message['data']);
        }
    }

    private function stopReason(string $id): ?string
    {
        if ($this->hello['capabilities'] === []) {
            return readStopReason();
        }
        do {
            [$readable, $none] = [[$this->input], null];
        } while (stream_select($readable, $none, $none, 0) > 0 && $this->read());
        return $this->cancelled[$id] ?? null;
    }

    /** Reads all available input with one call. Returns false at the end. */
    private function read(): bool
    {
        if ($this->isOver) {
            return false;
        }
        $chunk = fread($this->input, 1 << 16);
        if ($chunk === false || $chunk === '') {
            $this->isOver = true;
            return false;
        }
        $this->rest .= $chunk;
        if (!str_contains($chunk, "\n")) {
            return true;
        }
        $lines = explode("\n", $this->rest);
        $this->rest = array_pop($lines);
        foreach ($lines as $line) {
            $message = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
            match ($message['type']) {
                'run' => $this->waiting[] = $message,
                'cancel' => $this->cancelled[$message['id']] = $message['reason'] ?? 'cancel',
                'message' => $this->takeMessage($message),
                'ping' => $this->pong(),
                'drain' => $this->isOver = true,
                default => null,
            };
        }
        return true;
    }

    private function pong(): void
    {
        $this->say(['type' => 'pong']);
        $this->flush();
    }

    private function say(array $message): void
    {
        $line = toJson($message);
        if (strlen($line) > LONGEST_LINE) {
            throw new \LengthException('a message of more than ' . LONGEST_LINE . ' bytes');
        }
        $this->unwritten .= $line . "\n";
    }

    /** Writes all unwritten answers with one call. */
    private function flush(): void
    {
        if ($this->unwritten !== '') {
            writeAll($this->output, $this->unwritten);
            $this->unwritten = '';
        }
    }
}
