//! Random sequences of commands, on a store and on a model of it: both must give the same answers and have the same content
//! after every step. A failing sequence is shortened.
//!
//! `TASKQUEUE_TEST_MODEL_CASES` sets how many sequences are run on each engine, and `TASKQUEUE_TEST_MODEL_SEED` repeats those
//! of an earlier test.

mod commands;
mod expected;
mod real;
mod reference;

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use taskqueue_host::random::token;

use self::commands::Command;
use self::expected::state_of;
use self::real::Real;
use self::reference::Model;
use crate::each_engine;

/// The number of sequences in a normal test.
const CASES: u64 = 40;
/// The number of commands in a sequence.
const STEPS: usize = 30;

struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Model;
    type Transition = Command;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model::new()).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Command> {
        commands::any_command(model)
    }

    fn apply(mut model: Model, command: &Command) -> Model {
        model.step(command);
        model
    }

    fn preconditions(model: &Model, command: &Command) -> bool {
        model.allows(command)
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Executes the step on both sides, and compares answers and tables.
fn step(real: &mut Real<'_>, model: &mut Model, command: &Command) -> Result<(), TestCaseError> {
    let (answer, expected) = (real.step(command), model.step(command));
    prop_assert_eq!(answer, expected, "(store, model) after {:?}", command);
    prop_assert_eq!(real.state(), state_of(model), "(store, model) after {:?}", command);
    Ok(())
}

each_engine! {
    fn any_sequence_of_commands_does_to_a_store_what_the_rules_say(db) {
        let seed = number("TASKQUEUE_TEST_MODEL_SEED").unwrap_or_else(new_seed);
        let config = ProptestConfig {
            cases: u32::try_from(number("TASKQUEUE_TEST_MODEL_CASES").unwrap_or(CASES)).unwrap(),
            failure_persistence: None,
            max_shrink_time: 60_000,
            rng_algorithm: RngAlgorithm::ChaCha,
            rng_seed: RngSeed::Fixed(seed),
            ..ProptestConfig::default()
        };
        let real = std::cell::RefCell::new(Real::new(db));
        let outcome = TestRunner::new(config).run(&Machine::sequential_strategy(1..=STEPS), |(mut model, commands, seen)| {
            let mut real = real.borrow_mut();
            real.clear();
            for command in &commands {
                if let Some(seen) = &seen {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
                step(&mut real, &mut model, command)?;
            }
            Ok(())
        });
        if let Err(TestError::Fail(reason, (_, commands, _))) = outcome {
            panic!("TASKQUEUE_TEST_MODEL_SEED={seed}\n{reason}\nthe shortest sequence:\n{commands:#?}");
        }
        outcome.unwrap();
    }
}

/// Returns a new seed.
fn new_seed() -> u64 {
    u64::from_str_radix(&token().unwrap()[..16], 16).unwrap()
}
