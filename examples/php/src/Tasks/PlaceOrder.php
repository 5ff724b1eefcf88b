<?php

namespace App\Tasks;

use Taskqueue\ITaskQueueRunner;
use Taskqueue\TaskQueueRun;

/** Queues the confirmation of an order as a child, one for all attempts. */
final class PlaceOrder implements ITaskQueueRunner
{
    public function processTaskQueueRun(TaskQueueRun $run): void
    {
        $order = $run->TaskData['order'];
        $mail = $run->task->queue(SendMail::class, ['to' => 'full@example.org'], '--unique', "confirmation-$order");
        $run->Results = ['order' => $order, 'mail' => $mail];
    }
}
