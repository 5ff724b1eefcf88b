#!/usr/bin/env php
<?php
// Queues a task from PHP, inside a transaction of the application's own: both are committed, or neither.
// Usage: queue.php DSN CLASS JSON [USER PASSWORD], with a DSN of PDO: sqlite:/path, pgsql:host=…;dbname=…, mysql:…

require __DIR__ . '/TaskqueueQueue.php';

[, $dsn, $class, $json] = $argv;
$db = new PDO($dsn, $argv[4] ?? null, $argv[5] ?? null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

$db->beginTransaction();
// … the application's own changes …
$id = TaskqueueQueue::queueIn($db, $class, json_decode($json, false, 512, JSON_THROW_ON_ERROR));
$db->commit();
echo "queued task $id\n";
