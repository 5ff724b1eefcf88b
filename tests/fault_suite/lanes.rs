//! Which campaign runs next when several run at the same time: never two on one engine, since some stop or slow its server.

use std::sync::{Condvar, Mutex};

use super::Unit;
use super::database::EngineUnderTest;

pub struct Lanes {
    state: Mutex<State>,
    is_free: Condvar,
}

struct State {
    left: Vec<Unit>,
    busy: Vec<EngineUnderTest>,
}

impl Lanes {
    pub fn new(units: Vec<Unit>) -> Self {
        Self { state: Mutex::new(State { left: units, busy: Vec::new() }), is_free: Condvar::new() }
    }

    /// Takes the first unit whose engine is free, and returns it with how many were left; waits until there is one. Returns
    /// `None` when all are taken.
    pub fn next(&self) -> Option<(Unit, usize)> {
        let state = self.state.lock().unwrap();
        let is_waiting = |state: &mut State| !state.left.is_empty() && state.free().is_none();
        let mut state = self.is_free.wait_while(state, is_waiting).unwrap();
        let place = state.free()?;
        let left = state.left.len();
        let unit = state.left.remove(place);
        state.busy.push(unit.1);
        Some((unit, left))
    }

    /// Says that the unit on this engine has ended.
    pub fn end(&self, engine: EngineUnderTest) {
        self.state.lock().unwrap().busy.retain(|busy| *busy != engine);
        self.is_free.notify_all();
    }
}

impl State {
    fn free(&self) -> Option<usize> {
        self.left.iter().position(|(_, engine)| !self.busy.contains(engine))
    }
}
