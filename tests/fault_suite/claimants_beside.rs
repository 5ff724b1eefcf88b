//! Claimants together with runners: shell scripts that claim a run, and then end it like claimants do, or die with it.

use super::command::Command;
use super::stage::Stage;

/// Claims a run and ends it as its first argument specifies. A task that fails by design does not succeed here either. The run
/// of a claimant that dies is rescued at once, because the claim recorded its process.
const SCRIPT: &str = r#"
answer=$1; shift
[ "$answer" = hang ] || set -- "$@" --process $$
out=$("$@"); status=$?
[ "$status" = 0 ] || exit "$status"
run=$(expr "$out" : '{"run_id":\([0-9]*\)')
token=$(expr "$out" : '.*"token":"\([^"]*\)"')
case $answer$out in *'"class":"fail"'*) answer=error ;; esac
case $answer in
    resolve) "$1" worker heartbeat "$run" --token "$token" >/dev/null && "$1" worker resolve "$run" --token "$token" --results 1 ;;
    error) "$1" report progress "$run" 50 --token "$token" >/dev/null && "$1" worker resolve "$run" --token "$token" --error failed ;;
    reject) "$1" worker release "$run" --token "$token" ;;
    die) kill -KILL $$ ;;
esac
"#;

/// What a claimant does with its run.
const ANSWERS: [&str; 5] = ["resolve", "resolve", "error", "reject", "die"];

/// The number of names, so that a claimant that has rejected a task claims again.
const NAMES: usize = 3;

/// Returns the claimant with this number, with a prefix such as the command that enters another host. If there is nothing to
/// claim, it prints that.
pub fn acting<'a>(stage: &'a Stage, prefix: &[&str], number: usize) -> Command<'a> {
    let name = format!("claimant-{}", number % NAMES);
    answering_from(stage, prefix, &name, ANSWERS[number % ANSWERS.len()])
}

/// Returns a claimant with this name on this host that does this with its run: one of the answers, or `hang`, which leaves it
/// open.
pub fn answering<'a>(stage: &'a Stage, name: &str, answer: &str) -> Command<'a> {
    answering_from(stage, &[], name, answer)
}

fn answering_from<'a>(stage: &'a Stage, prefix: &[&str], name: &str, answer: &str) -> Command<'a> {
    let words = [prefix, &["/bin/sh", "-c", SCRIPT, "sh", answer]].concat();
    stage
        .command(&["worker", "claim", "--claimant", name])
        .under(&words)
        .env("TASKQUEUE_CLAIMANT", name)
        .may_answer(&[3])
}
