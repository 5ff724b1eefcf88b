<?php
// An application copies run-task.php and TaskqueueHandler.php; this one lies beside them.
require __DIR__ . '/../../contrib/handlers/run-task.php';
