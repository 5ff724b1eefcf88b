//! Connections to the servers that are cut: after a COMMIT was sent and before its answer, before it, or within a request or an
//! answer. Others swallow all data, or are slow. No caller may notice.

use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::kill_label::scenarios::Scenario;
use super::proxy::{Cut, Proxy};
use super::records::Fate;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "lost-commit",
    what: "connections cut around COMMIT and elsewhere, swallowed, slowed down",
    engines: &[EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql],
    run,
};

/// Connections that are cut in one trial.
const CUTS: usize = 4;
/// How often a cut is tried: it comes too late if a command sends less than planned.
const TRIES: usize = 12;
const COMMANDS: [&str; 11] =
    ["queue", "batch", "create", "rescue", "process", "drain", "fail", "give-back", "report", "settings", "classes"];

fn run(job: &Job<'_>) {
    let Some((mut stage, mut proxy)) = behind_proxy(job) else { return job.note("no server".to_owned()) };
    for trial in job.trials(2, 42) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            stage.outcomes_are_kept.set(true);
            for _ in 0..CUTS {
                job.count(cut_once(stage, &proxy, &mut rng));
            }
        });
        if !is_fit {
            (stage, proxy) = behind_proxy(job).unwrap();
        }
    }
}

/// The program sees only the proxy, because the address is part of what it writes to the spool.
fn behind_proxy(job: &Job<'_>) -> Option<(Stage, Proxy)> {
    let stage = job.stage()?;
    let proxy = Proxy::start("127.0.0.1", stage.url());
    stage.env.borrow_mut().push(("TASKQUEUE_DATABASE_URL".to_owned(), proxy.url.clone()));
    Some((stage, proxy))
}

fn cut_once(stage: &Stage, proxy: &Proxy, rng: &mut Rng) -> usize {
    for attempt in 0..TRIES {
        let name: &str = COMMANDS[rng.below(COMMANDS.len())];
        let command = Scenario::named(name).command(stage);
        let (cut, occasions) = *rng.pick(&[
            (Cut::AfterCommit, 4),
            (Cut::AfterCommit, 4),
            (Cut::BeforeCommit, 4),
            (Cut::InRequest, 25),
            (Cut::InAnswer, 25),
            (Cut::BlackHole, 25),
            (Cut::InLogin, 20),
        ]);
        let nth = if attempt < TRIES / 2 { 1 + rng.below(occasions) } else { 1 };
        proxy.slow_down(Duration::from_millis(if rng.below(8) == 0 { 5 } else { 0 }));
        proxy.plan(cut, nth);
        let call = command.run();
        proxy.slow_down(Duration::ZERO);
        let was_cut = proxy.clear();
        // A failed login is not retried.
        let is_refused = was_cut && cut == Cut::InLogin && call.fate == Fate::Exited(69);
        stage.may_fail.set(stage.may_fail.get() || is_refused);
        assert!(call.is_ok() || is_refused, "{cut:?} {nth}: {call:?}");
        if was_cut {
            return 1;
        }
    }
    panic!("no connection was cut in {TRIES} commands")
}
