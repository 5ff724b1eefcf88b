//! A slot of a worker: executes one run after the other. A thread of its own, which lives as long as the worker: the kernel
//! kills handlers with the thread that started them.

use std::time::Duration;

use super::super::execute::execute;
use super::super::in_process::HandlerThread;
use super::super::run_listener::{RunListener, RunOutcome};
use super::super::workplace::Workplace;
use super::backlog::Backlog;
use crate::domain::ids::RunId;
use crate::domain::records::ClaimedRun;
use crate::os::child::Stream;
use crate::os::clock::Moment;
use crate::os::event_socket::EventSocket;
use crate::os::marks::Marks;

pub(super) struct Slot<'a> {
    pub(super) number: usize,
    pub(super) place: &'a Workplace<'a>,
    pub(super) backlog: &'a Backlog,
    pub(super) marks: Option<&'a Marks>,
}

impl Slot<'_> {
    pub(super) fn work(&self) {
        // Without the socket `taskqueue progress` does not reach us; descriptor 3 still does.
        let socket = EventSocket::bind(self.place.requests.clone()).ok();
        let mut thread = HandlerThread::default();
        while let Some((run, terms)) = self.backlog.next() {
            fault_point!("slot.run_taken");
            if let Some(marks) = self.marks {
                marks.set(self.number, &run.token);
            }
            fault_point!("slot.marked");
            let began = Moment::now();
            let executed = execute(self.place, &terms, &run, socket.as_ref(), &mut thread, &mut Unheard);
            self.backlog.finish(&self.place.database, run, executed, began.elapsed());
        }
    }
}

/// The coordinator tells what there is to tell.
struct Unheard;

impl RunListener for Unheard {
    fn is_heard(&self) -> bool {
        false
    }

    fn stopping(&mut self, _runs: &[RunId], _wait: Duration) {}

    fn claimed(&mut self, _run: &ClaimedRun) {}

    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}

    fn ended(&mut self, _run: &ClaimedRun, _outcome: &RunOutcome) {}
}
