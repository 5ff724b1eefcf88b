//! Sixteen processes migrate an empty store at once, and some are killed: afterwards the tables are those of an undisturbed
//! migration, and everything works.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::options::ENGINES;
use super::records::Fate;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "racing-migrations",
    what: "16 processes migrate an empty store at once, some are killed",
    engines: &ENGINES,
    run,
};

const PROCESSES: usize = 16;
/// The range of the kills, in microseconds, which depends on the engine.
const KILLED_WITHIN_MICROS: [usize; 3] = [4_000, 20_000, 80_000];

/// The tables after an undisturbed migration, on the current engine.
static EXPECTED: Mutex<Option<(&str, Vec<String>)>> = Mutex::new(None);

fn run(job: &Job<'_>) {
    // The processes of one race use one store; two stores at a time keep the machine busy enough.
    let (worker, workers) = (job.worker, job.workers.min(2));
    if worker >= workers {
        return;
    }
    for trial in job.share(1, 25, worker, workers) {
        let Some(mut stage) = Stage::without_tables(job.engine, &job.options.program) else {
            return job.note("no server".to_owned());
        };
        let expected = expected(job);
        let mut rng = job.rng(trial);
        let raced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| race(&stage, &mut rng)));
        job.count(*raced.as_ref().unwrap_or(&0));
        let found = match raced {
            Err(panic) => vec![super::campaign::panic_text(&*panic)],
            Ok(_) if tables(&stage) != expected => vec![format!("the tables are {:#?}", tables(&stage))],
            Ok(_) => Vec::new(),
        };
        if !found.is_empty() {
            job.violated(trial, &found);
            continue;
        }
        stage.prepare_tables();
        job.trial(trial, &mut stage, |stage| {
            for class in ["note", "fail", "give-back"] {
                stage.queue(class);
            }
        });
    }
}

/// Returns how many were killed.
fn race(stage: &Stage, rng: &mut Rng) -> usize {
    let mut running: Vec<_> = (0..PROCESSES).map(|_| stage.command(&["db", "migrate"]).spawn()).collect();
    rng.shuffle(&mut running);
    let kills = rng.below(PROCESSES / 2) + 1;
    let within = *rng.pick(&KILLED_WITHIN_MICROS);
    let mut killed = 0;
    for process in running.iter_mut().take(kills) {
        std::thread::sleep(Duration::from_micros(rng.below(within / kills) as u64));
        killed += usize::from(!process.has_exited(Duration::ZERO));
        process.kill();
    }
    for process in running {
        let call = process.wait();
        assert!(matches!(call.fate, Fate::Exited(0) | Fate::Killed(_)), "{call:?}");
    }
    let call = stage.command(&["db", "migrate"]).run();
    assert!(call.is_ok(), "{call:?}");
    killed
}

fn expected(job: &Job<'_>) -> Vec<String> {
    let mut known = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((engine, tables)) = &*known
        && *engine == job.engine.name()
    {
        return tables.clone();
    }
    let stage = Stage::without_tables(job.engine, &job.options.program).unwrap();
    assert!(stage.command(&["db", "migrate"]).run().is_ok());
    let tables = tables(&stage);
    assert!(tables.len() > 30, "the tables cannot be read");
    known.insert((job.engine.name(), tables)).1.clone()
}

/// Returns tables, columns, indexes, constraints, and the initial rows of a store.
fn tables(stage: &Stage) -> Vec<String> {
    let queries: &[&str] = match stage.engine {
        EngineUnderTest::Sqlite => &["SELECT sql AS value FROM sqlite_master WHERE sql IS NOT NULL"],
        EngineUnderTest::Postgres => &[
            "SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable, column_default, \
             generation_expression) AS value FROM information_schema.columns WHERE table_schema = 'public'",
            "SELECT indexdef AS value FROM pg_indexes WHERE schemaname = 'public'",
            "SELECT conname || pg_get_constraintdef(oid) AS value FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
        ],
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => &[
            "SELECT CONCAT_WS(' ', table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra, \
             generation_expression) AS value FROM information_schema.columns WHERE table_schema = DATABASE()",
            "SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique) AS value \
             FROM information_schema.statistics WHERE table_schema = DATABASE()",
            "SELECT CONCAT_WS(' ', constraint_name, check_clause) AS value FROM information_schema.check_constraints \
             WHERE constraint_schema = DATABASE()",
        ],
    };
    let rows = match stage.engine {
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "CONCAT(\"Name\", '=', \"Value\")",
        _ => "\"Name\" || '=' || \"Value\"",
    };
    let mut all: Vec<String> = queries.iter().flat_map(|query| stage.texts(query)).collect();
    all.extend(stage.texts(&format!("SELECT {rows} AS value FROM \"TaskQueueSettings\"")));
    all.extend(stage.texts("SELECT \"version\" AS value FROM \"__diesel_schema_migrations\""));
    all.sort();
    all
}
