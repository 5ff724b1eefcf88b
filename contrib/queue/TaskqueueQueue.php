<?php
// Queues tasks from PHP: with the program, or inside a transaction of your application.
//
//   require 'TaskqueueQueue.php';
//   $id = TaskqueueQueue::queue('mail.send', ['to' => 'ann@example.org'], ['unique' => 'welcome-17', 'delay' => 600]);
//
//   $db->beginTransaction();          // a PDO for PostgreSQL, MySQL, MariaDB or SQLite
//   $db->exec("UPDATE orders SET status = 'paid' WHERE id = 17");
//   $id = TaskqueueQueue::queueIn($db, 'invoice.make', ['order' => 17]);
//   $db->commit();
//
// `queue` checks the class, the data and the options as `taskqueue queue` does, and throws a TaskqueueQueueException if it
// refuses them. `queueIn` writes one row, which exists if and only if the transaction is committed; it does not check that the
// class has a handler. This is one file without dependencies, for PHP 8: copy it into the application. For more, see
// docs/handlers.md#queueing-from-a-program.
//
// With `unique` on MariaDB 11.6 or newer, execute `SET SESSION innodb_snapshot_isolation = OFF` first if the transaction is
// REPEATABLE READ (docs/several-hosts-mysql.md#settings-of-the-server).

declare(strict_types=1);

/** Nothing was queued. The code of the exception is the exit status of the program, or its equivalent. */
final class TaskqueueQueueException extends RuntimeException
{
    /** `$kind` is the kind of error, `$hint` how to fix it; each is null if the program reported none. */
    public function __construct(
        string $message,
        int $status,
        public readonly ?string $kind = null,
        public readonly ?string $hint = null,
    ) {
        parent::__construct($message, $status);
    }
}

final class TaskqueueQueue
{
    private const NOW = [
        'sqlite' => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
        'pgsql' => 'clock_timestamp()',
        'mysql' => 'UTC_TIMESTAMP(6)',
    ];
    // Uses the clock of the database.
    private const LATER = [
        'sqlite' => "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now', '%d seconds')",
        'pgsql' => "clock_timestamp() + %d * interval '1 second'",
        'mysql' => 'UTC_TIMESTAMP(6) + INTERVAL %d SECOND',
    ];
    // On MySQL, the INSERT fails with this error if another task has the key. MariaDB permits ON DUPLICATE KEY UPDATE only to
    // users who may update all inserted columns, and IGNORE would shorten values.
    private const DUPLICATE = 1062;
    private const UNLESS_THERE = ['sqlite' => ' ON CONFLICT DO NOTHING', 'pgsql' => ' ON CONFLICT DO NOTHING', 'mysql' => ''];
    private const RETURNING = ['sqlite' => '', 'pgsql' => ' RETURNING "Id"', 'mysql' => ''];
    // A transaction of MySQL that has read before reads the task of another transaction only with a lock.
    private const LATEST = ['sqlite' => '', 'pgsql' => '', 'mysql' => ' LOCK IN SHARE MODE'];
    private const REFUSED = ['run', 'wait', 'batch'];

    /**
     * Queues a task and returns its id. If another task already has the `unique` key, returns the id of that task.
     *
     * The options are those of `taskqueue queue`, with underscores: unique, on_conflict, unique_for, priority, at, max_retries,
     * timeout, expires, after, after_any, limit_key, any_class, database and so on; `delay` is --in. Numbers for times are
     * seconds. An option that may be given more than once is a list; meta may be an array with keys. Not supported: run and wait,
     * which return the exit status of the handler, and batch, which returns several ids.
     */
    public static function queue(string $class, mixed $data = new stdClass(), array $options = [], string $program = 'taskqueue'): int
    {
        $arguments = [$program, 'queue', '--json'];
        foreach ($options as $name => $value) {
            array_push($arguments, ...self::option($name === 'delay' ? 'in' : strtr($name, '_', '-'), $value));
        }
        // Passes the data on standard input: an argument could be too long, and every user can read it.
        array_push($arguments, '--', $class, '-');
        [$status, $printed, $said] = self::run($arguments, self::json($data));
        if ($status !== 0) {
            throw self::exceptionOf($status, $said);
        }
        return json_decode($printed, true, 512, JSON_THROW_ON_ERROR)['id'];
    }

    /**
     * Queues a task over this connection, in its transaction, and returns the id. If another task already has the `unique` key,
     * returns the id of that task. `delay` is in seconds, and so is `expires`: the task must start within this time after the
     * delay.
     */
    public static function queueIn(
        PDO $db,
        string $class,
        mixed $data = new stdClass(),
        ?string $unique = null,
        ?int $delay = null,
        int $priority = 0,
        ?int $expires = null,
    ): int {
        $engine = $db->getAttribute(PDO::ATTR_DRIVER_NAME);
        // PostgreSQL and SQLite need the names in double quotes; MySQL needs them without.
        $sql = fn (string $text): string => $engine === 'mysql' ? str_replace('"', '', $text) : $text;
        $columns = ['"TaskClass"' => '?', '"TaskData"' => '?', '"Priority"' => (string) $priority];
        $values = [$class, self::json($data)];
        if ($delay !== null) {
            $columns['"ScheduledOn"'] = sprintf(self::LATER[$engine], $delay);
        }
        if ($expires !== null) {
            $columns['"StartBefore"'] = sprintf(self::LATER[$engine], ($delay ?? 0) + $expires);
        }
        if ($unique !== null) {
            $columns['"UniqueKey"'] = '?';
            $values[] = $unique;
        }
        $names = implode(', ', array_keys($columns));
        $insert = $sql("INSERT INTO \"TaskQueue\" ($names) VALUES (") . implode(', ', $columns) . ')';
        if ($unique === null) {
            return self::idOf($db, self::execute($db, $insert . self::RETURNING[$engine], $values));
        }
        $hasKey = $sql('WHERE "TaskClass" = ? AND "LiveUniqueKey" = ?');
        // The index does not detect that the time for which a key is kept has passed.
        $isOver = $sql('AND "UniqueUntil" <= ') . self::NOW[$engine];
        self::execute($db, $sql('UPDATE "TaskQueue" SET "UniqueUntil" = NULL') . " $hasKey $isOver", [$class, $unique]);
        for ($try = 1; $try <= 2; $try++) {
            $keyed = $insert . self::UNLESS_THERE[$engine] . self::RETURNING[$engine];
            $queued = self::execute($db, $keyed, $values, $engine === 'mysql' ? self::DUPLICATE : null);
            // Without a transaction, the new task may have ended by now, and has no key then.
            if ($queued !== null && ($id = self::idOf($db, $queued)) !== null) {
                return $id;
            }
            $select = $sql('SELECT "Id" FROM "TaskQueue"') . " $hasKey" . self::LATEST[$engine];
            $id = self::execute($db, $select, [$class, $unique])->fetchColumn();
            if ($id !== false) {
                return (int) $id;
            }
            // The task that had the key has ended meanwhile.
        }
        throw new TaskqueueQueueException("the key \"$unique\" was taken and given up again, twice; nothing was queued", 1);
    }

    /** Returns the id of the inserted row, or null if there is none. */
    private static function idOf(PDO $db, PDOStatement $insert): ?int
    {
        $isReturned = $db->getAttribute(PDO::ATTR_DRIVER_NAME) === 'pgsql';
        $id = $isReturned ? $insert->fetchColumn() : ($insert->rowCount() > 0 ? $db->lastInsertId() : false);
        return $id === false ? null : (int) $id;
    }

    /** Returns null if the server reports the error `$allowed`. */
    private static function execute(PDO $db, string $sql, array $values, ?int $allowed = null): ?PDOStatement
    {
        try {
            $statement = $db->prepare($sql);
            if ($statement !== false && $statement->execute($values)) {
                return $statement;
            }
            $said = $statement === false ? $db->errorInfo() : $statement->errorInfo();
            $error = new RuntimeException(implode(' ', $said));
        } catch (PDOException $error) {
            $said = $error->errorInfo;
        }
        if ($allowed !== null && ($said[1] ?? null) === $allowed) {
            return null;
        }
        throw $error;
    }

    private static function json(mixed $data): string
    {
        return json_encode($data, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
    }

    private static function option(string $name, mixed $value): array
    {
        if ($value === null || $value === false) {
            return [];
        }
        if (in_array($name, self::REFUSED, true)) {
            throw new TaskqueueQueueException("the option \"$name\" is not for programs that queue; nothing was queued", 2);
        }
        if ($value === true) {
            return ["--$name"];
        }
        if (is_array($value)) {
            $items = array_is_list($value) ? $value : array_map(fn ($key, $item) => "$key=$item", array_keys($value), $value);
            return array_map(fn ($item) => "--$name=$item", $items);
        }
        if (in_array($name, ['in', 'expires', 'timeout', 'unique-for'], true) && is_int($value)) {
            $value = "{$value}s";
        }
        return ["--$name=$value"];
    }

    private static function run(array $arguments, string $input): array
    {
        $pipes = [];
        $process = @proc_open($arguments, [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes);
        if ($process === false) {
            throw new TaskqueueQueueException("{$arguments[0]} cannot be started", 127);
        }
        // A program that refuses its arguments does not read the data.
        @fwrite($pipes[0], $input);
        fclose($pipes[0]);
        [$printed, $said] = [stream_get_contents($pipes[1]), stream_get_contents($pipes[2])];
        return [proc_close($process), $printed, $said];
    }

    private static function exceptionOf(int $status, string $said): TaskqueueQueueException
    {
        $lines = explode("\n", trim($said));
        $error = json_decode(end($lines), true)['error'] ?? null;
        if ($error === null) {
            return new TaskqueueQueueException(trim($said) ?: "exit status $status", $status);
        }
        return new TaskqueueQueueException($error['message'], $status, $error['code'], $error['hint']);
    }
}
