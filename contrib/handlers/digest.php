#!/usr/bin/env php
<?php
// A sample handler in PHP, for a process per run and for a coprocess: computes the checksum of a file.
// Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.

require __DIR__ . '/TaskqueueHandler.php';

use Taskqueue\Failure;
use Taskqueue\Task;

Taskqueue\serve(function (Task $task): array {
    $file = is_array($task->data) ? ($task->data['file'] ?? null) : null;
    if (!is_string($file) || !str_starts_with($file, '/')) {
        throw new Failure('bad-data', 'the data must be {"file":"/absolute/path"}', exitCode: 65);
    }
    $content = @file_get_contents($file);
    if ($content === false) {
        throw new Failure('no-file', "$file cannot be read yet", exitCode: 75);
    }
    $task->progress(50, strlen($content) . ' bytes read');
    return ['bytes' => strlen($content), 'sha256' => hash('sha256', $content)];
});
