<?php
// Handles every task class that is the name of a PHP class, such as App\Tasks\SendMail: creates an instance of it and calls its
// processTaskQueueRun. Copy this file next to TaskqueueHandler.php, and name it in the configuration:
//
//   [class.'App\Tasks\*']
//   argv = ["/usr/bin/php", "/srv/app/run-task.php"]
//   exists = ["/usr/bin/php", "/srv/app/run-task.php", "--exists", "{class}"]
//   cwd = "/srv/app"
//
// With protocol = "coprocess" the process keeps running and handles several runs. It loads the classes with the
// vendor/autoload.php of the working directory or of a directory above this file.

namespace Taskqueue;

require __DIR__ . '/TaskqueueHandler.php';

/** Returns the nearest vendor/autoload.php. */
function autoloader(): string
{
    $places = [getcwd()];
    for ($place = __DIR__; $place !== dirname($place); $place = dirname($place)) {
        $places[] = $place;
    }
    foreach ($places as $place) {
        if (is_file("$place/vendor/autoload.php")) {
            return "$place/vendor/autoload.php";
        }
    }
    fwrite(\STDERR, 'there is no vendor/autoload.php in ' . implode(', ', $places) . "; call `composer dump-autoload`\n");
    exit(78);
}

/** Returns an instance of the class that a task names. */
function runnerOf(string $class): ITaskQueueRunner
{
    if (!class_exists($class)) {
        throw new Failure('no-such-class', "there is no PHP class $class", retry: false);
    }
    if (!is_subclass_of($class, ITaskQueueRunner::class)) {
        throw new Failure('no-runner', "$class does not implement " . ITaskQueueRunner::class, retry: false);
    }
    return new $class();
}

require autoloader();

if (($argv[1] ?? '') === '--exists') {
    try {
        runnerOf($argv[2] ?? '');
    } catch (\Throwable $thrown) {
        fwrite(\STDERR, $thrown->getMessage() . "\n");
        exit(1);
    }
    exit(0);
}

serve(function (Task $task): void {
    runnerOf($task->taskClass)->processTaskQueueRun(new TaskQueueRun($task));
});
