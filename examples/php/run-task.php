<?php
// An application copies run-task.php and TaskqueueHandler.php; this one lies beside them.
$original = __DIR__ . '/../../contrib/handlers/run-task.php';
if (!is_file($original)) {
    fwrite(STDERR, "copy run-task.php and TaskqueueHandler.php of contrib/handlers to " . __DIR__ . ", over this file\n");
    exit(78);
}
require $original;
