<?php

namespace App\Tasks;

use Taskqueue\ITaskQueueRunner;
use Taskqueue\TaskQueueRun;

/** Fails with the code of a mail server. */
final class SendMail implements ITaskQueueRunner
{
    public function processTaskQueueRun(TaskQueueRun $run): void
    {
        throw new \RuntimeException("the mailbox of {$run->TaskData['to']} is full", 552);
    }
}
