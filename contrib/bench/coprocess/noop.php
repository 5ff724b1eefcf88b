<?php
// Does nothing, kept running as a coprocess.

require __DIR__ . '/../../handlers/TaskqueueHandler.php';

Taskqueue\serve(fn (Taskqueue\Task $task): mixed => null, inFlight: 64);
