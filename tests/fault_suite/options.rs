//! The options of the command line.

use std::path::PathBuf;

use super::database::EngineUnderTest;

pub const ENGINES: [EngineUnderTest; 4] =
    [EngineUnderTest::Sqlite, EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql];

const USAGE: &str = "\
usage: fault_suite [--quick | --all] [--only NAME]... [--engine NAME] [--seed N] [--trials N] [--trial N] [--workers N]
                   [--first] [--list]
  --quick     a sample of every campaign, without the seeded bugs: at most 3 minutes (the default)
  --all       every campaign in full, and every seeded bug: at most an hour
  --only      this campaign alone; `bugs`, or `bug:NAME`, for the seeded bugs
  --trial     this trial alone: to repeat a violation, with the seed of its run
  --first     stop a campaign at its first violation
";

#[derive(Clone, Debug)]
pub struct Options {
    pub all: bool,
    pub only: Vec<String>,
    pub engine: Option<EngineUnderTest>,
    pub seed: u64,
    pub trials: Option<usize>,
    pub trial: Option<usize>,
    pub workers: usize,
    pub first: bool,
    pub list: bool,
    /// No trial begins after this moment: for seeded bugs, which may never be detected.
    pub until: Option<std::time::Instant>,
    /// Whether the program has a seeded bug, so that violations are expected.
    pub is_hunt: bool,
    /// Whether transitions are not stored.
    pub is_plain: bool,
    /// The tested program, a copy that no build replaces.
    pub program: PathBuf,
}

impl Options {
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            all: false,
            only: Vec::new(),
            engine: None,
            seed: fresh_seed(),
            trials: None,
            trial: None,
            // Trials mostly wait: for locks, for disks, for handlers that sleep.
            workers: 4 * std::thread::available_parallelism().map_or(2, usize::from),
            first: false,
            list: false,
            until: None,
            is_hunt: false,
            is_plain: false,
            program: PathBuf::from(env!("CARGO_BIN_EXE_taskqueue")),
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} takes a value\n{USAGE}"));
            match argument.as_str() {
                "--all" => options.all = true,
                "--quick" => options.all = false,
                "--first" => options.first = true,
                "--list" => options.list = true,
                "--only" => options.only.push(value()?),
                "--program" => options.program = value()?.into(),
                "--engine" => options.engine = Some(engine(&value()?)?),
                "--seed" => options.seed = number(&value()?)?,
                "--workers" => options.workers = number(&value()?)?,
                "--trials" => options.trials = Some(number(&value()?)?),
                "--trial" => options.trial = Some(number(&value()?)?),
                _ => return Err(format!("{argument} is no option\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// Returns true for a sample of everything in a limited time.
    pub fn is_quick(&self) -> bool {
        !self.all && self.only.is_empty() && self.trials.is_none() && self.trial.is_none()
    }

    pub fn wants(&self, campaign: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == campaign)
    }

    pub fn engines(&self) -> impl Iterator<Item = EngineUnderTest> + '_ {
        ENGINES.into_iter().filter(|engine| self.engine.is_none_or(|only| only == *engine))
    }
}

fn engine(name: &str) -> Result<EngineUnderTest, String> {
    ENGINES.into_iter().find(|engine| engine.name() == name).ok_or(format!("{name} is no engine"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}
