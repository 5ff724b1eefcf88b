#!/usr/bin/env php
<?php
// Queues a task from PHP, inside a transaction of the application's own: both are committed, or neither.
// Usage: queue.php DSN CLASS JSON [USER PASSWORD], with a DSN of PDO: sqlite:/path, pgsql:host=…;dbname=…, mysql:…

[, $dsn, $class, $json] = $argv;
$db = new PDO($dsn, $argv[4] ?? null, $argv[5] ?? null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
// PostgreSQL and SQLite want the names in double quotes; MySQL takes them as they are.
$quote = $db->getAttribute(PDO::ATTR_DRIVER_NAME) === 'mysql' ? '' : '"';

$db->beginTransaction();
// … the application's own changes …
$db->prepare("INSERT INTO {$quote}TaskQueue{$quote} ({$quote}TaskClass{$quote}, {$quote}TaskData{$quote}) VALUES (?, ?)")
    ->execute([$class, $json]);
$id = $db->lastInsertId();
$db->commit();
echo "queued task $id\n";
