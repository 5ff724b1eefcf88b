//! Runs every check on examples, on damaged examples, and on arbitrary input.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{TestError, TestRunner};

use super::{TARGETS, Target};

/// Generates an example with a piece cut out and replaced by another piece or by any bytes.
fn spoilt(target: &Target) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds: Vec<&'static str> = target.seeds.to_vec();
    let piece = prop_oneof![
        select(seeds.clone()).prop_map(|seed| seed.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
        ".{0,4}".prop_map(String::into_bytes),
    ];
    (select(seeds), any::<[Index; 2]>(), piece).prop_map(|(seed, cuts, piece)| {
        let mut cuts = cuts.map(|cut| cut.index(seed.len() + 1));
        cuts.sort_unstable();
        let mut input = seed.as_bytes().to_vec();
        input.splice(cuts[0]..cuts[1], piece);
        input
    })
}

/// Returns the input that broke a guarantee, if any.
fn run(target: &Target) -> Option<String> {
    let examples = target.seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect::<Vec<_>>();
    let runner = |cases| TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    let check = |input: Vec<u8>| {
        (target.check)(&input);
        Ok(())
    };
    let all_examples = runner(1).run(&Just(examples), |examples| examples.into_iter().try_for_each(check));
    let any_input = prop_oneof![4 => spoilt(target), 1 => prop::collection::vec(any::<u8>(), 0..64)];
    let outcome =
        all_examples.map_err(|error| error.to_string()).and_then(|()| match runner(400).run(&any_input, check) {
            Err(TestError::Fail(reason, input)) => Err(format!("{reason}: {:?}", String::from_utf8_lossy(&input))),
            other => other.map_err(|error| error.to_string()),
        });
    outcome.err().map(|error| format!("{}: {error}", target.name))
}

#[test]
fn every_parser_keeps_its_promises_whatever_it_is_given() {
    let broken: Vec<String> = TARGETS.iter().filter_map(run).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
