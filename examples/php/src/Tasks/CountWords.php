<?php

namespace App\Tasks;

use Taskqueue\ITaskQueueRunner;
use Taskqueue\TaskQueueRun;

/** Counts the words of a text. */
final class CountWords implements ITaskQueueRunner
{
    public function processTaskQueueRun(TaskQueueRun $run): void
    {
        $run->PercentsCompleted = 50;
        $run->Results = ['words' => str_word_count($run->TaskData['text'])];
    }
}
