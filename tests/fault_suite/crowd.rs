//! Commands that run at the same time, started and waited for by one thread.

use std::time::Duration;

use super::command::{Command, Running};
use super::records::Call;

#[derive(Default)]
pub struct Crowd<'a> {
    running: Vec<Running<'a>>,
}

impl<'a> Crowd<'a> {
    pub fn start(&mut self, command: Command<'a>) {
        self.running.push(command.spawn());
    }

    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Waits for the commands that have ended.
    pub fn reap(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].has_exited(Duration::ZERO) {
                self.running.swap_remove(at).wait();
            } else {
                at += 1;
            }
        }
    }

    /// Waits for all commands.
    pub fn wait(&mut self) -> Vec<Call> {
        self.running.drain(..).map(Running::wait).collect()
    }
}
