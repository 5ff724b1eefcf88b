#!/usr/bin/env php
<?php
// Queues a task from PHP inside a transaction of the application: both are committed, or neither.
// Usage: [DB_PASSWORD=…] queue.php DSN CLASS JSON [USER], with a DSN of PDO: sqlite:/path, pgsql:host=…;dbname=…, mysql:…
// The password comes from the environment, because every user can read arguments.

require __DIR__ . '/TaskqueueQueue.php';

if ($argc < 4) {
    fwrite(STDERR, "usage: queue.php DSN CLASS JSON [USER]\n");
    exit(2);
}
[, $dsn, $class, $json] = $argv;
$password = getenv('DB_PASSWORD');
$db = new PDO($dsn, $argv[4] ?? null, $password === false ? null : $password, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

$db->beginTransaction();
// … the application's own changes …
$id = TaskqueueQueue::queueIn($db, $class, json_decode($json, false, 512, JSON_THROW_ON_ERROR));
$db->commit();
echo "queued task $id\n";
