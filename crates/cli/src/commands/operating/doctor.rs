//! `taskqueue doctor`

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::commands::options::selected::if_gone;
use crate::commands::options::task_options::duration_option;
use crate::error::CliError;
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::session::Session;
use taskqueue_domain::monitoring::thresholds::Level;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::HeldClaim;
use taskqueue_engine::inspect::diagnosis::hung::HungRun;
use taskqueue_engine::inspect::doctor::{OwnFiles, Symptom, Trouble, examine, examine_closed, list_claims};
use taskqueue_engine::{Engine, Pooler, why_no_own_group};
use taskqueue_views::clock::{clock_ahead, clock_words};
use taskqueue_views::human::{count, distance, fitted_words, plural, relative};
use taskqueue_views::hung::{cancel_hung, silent_words};
use taskqueue_views::pause_words::{pause_words, resume_command};
use taskqueue_views::shell_word::shell_word;
use taskqueue_views::standstill::{standstill_remedy, standstill_words};
use taskqueue_views::why::{deadline_words, holder, sentence};

/// How many claims are listed.
const CLAIMS: i64 = 20;

/// Check store, server, host and configuration for problems
///
/// Findings that stop the most work come first. Each has a command that fixes it or shows more. The exit status is 0 if nothing
/// was found, 1 if something needs attention, and 2 if tasks do not run or could be lost. A part that cannot be examined is a
/// finding, too. If the store cannot be opened, `doctor` prints why, and examines its files and this host.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue doctor\n  taskqueue doctor --json")]
pub(crate) struct DoctorArgs {
    /// Report transactions of other programs that have been open for longer than this
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    long_transaction: String,
}

pub(crate) fn run(session: Session, args: &DoctorArgs, out: &mut Out) -> anyhow::Result<u8> {
    let long = duration_option("--long-transaction", Some(&args.long_transaction))?.unwrap_or_default();
    let long_secs = i64::try_from(long.as_secs()).unwrap_or(i64::MAX);
    let files = OwnFiles {
        configuration: session.config.exists.then(|| session.config.path.clone()),
        store: session.url.path(),
    };
    let configuration = session.config.path.clone();
    let (url, spool) = (session.url.clone(), session.spool.clone());
    let mut claims = Vec::new();
    let (troubles, now, ahead) = match session.open_to_read(out) {
        Ok(mut ctx) => {
            let troubles = examine(&mut ctx, &files, long_secs);
            let (now, ahead) = (ctx.now().ok(), clock_ahead(&mut ctx).ok().flatten());
            // If the database refuses this, the problem is reported anyway.
            claims = list_claims(&mut ctx, CLAIMS + 1).unwrap_or_default();
            (troubles, now, ahead)
        }
        Err(error) => {
            let error = CliError::from(error).message().to_owned();
            (examine_closed(&url, error, &files, spool.as_deref()), None, None)
        }
    };
    let level = troubles.iter().map(Trouble::level).max().unwrap_or_default();
    let level = if ahead.is_some() { level.max(Level::Warning) } else { level };
    let no_own_group = why_no_own_group();
    let about = About { now: now.unwrap_or_default(), configuration: configuration.display().to_string() };
    if out.is_json() {
        let findings: Vec<Value> = troubles.iter().map(|trouble| finding_json(trouble, &about)).collect();
        out.json(&json!({
            "schema": "taskqueue.doctor/1", "now": now, "level": level, "findings": findings,
            "clock_ahead_secs": ahead.map(|ahead| ahead.num_seconds()),
            "pooler": (url.engine() == Engine::Postgres).then(|| url.pooler_mode().name()),
            "no_own_group": no_own_group, "claims": claims,
        }))?;
    } else {
        out.data(text(&troubles, ahead, &about, out))?;
        print_claims(&claims, about.now, out)?;
        if url.pooler_mode() != Pooler::NotFound {
            out.data(fitted_words(&pooler_words(url.pooler_mode()), out.width()))?;
        }
        if let Some(why) = no_own_group {
            out.data(note(&why, out))?;
        }
    }
    Ok(match level {
        Level::Ok => 0,
        Level::Warning => 1,
        Level::Critical => 2,
    })
}

/// Prints the first of these claims with their deadlines. They are no problems: only an operator can decide whether a claimant
/// has disappeared.
fn print_claims(claims: &[HeldClaim], now: DateTime<Utc>, out: &mut Out) -> anyhow::Result<()> {
    let shown = usize::try_from(CLAIMS).unwrap_or(usize::MAX);
    for claim in claims.iter().take(shown) {
        let who = holder(Some(&claim.claimant), None, &claim.host);
        let deadline = claim.deadline.map(|on| format!("{}, ", deadline_words(on, now))).unwrap_or_default();
        let renewed = relative(claim.renewed_on, now);
        let words =
            format!("claim  run {} of task {}: {who}; {deadline}renewed {renewed}", claim.run_id, claim.task_id);
        out.data(fitted_words(&clean_line(&words), out.width()))?;
    }
    match claims {
        [] => Ok(()),
        [first, ..] => {
            if claims.len() > shown {
                out.data(fitted_words("claim  and more, with later deadlines", out.width()))?;
            }
            out.data(fitted_words(&clean_line(&format!("       {}", if_gone(first))), out.width()))
        }
    }
}

fn pooler_words(pooler: Pooler) -> String {
    let how = if pooler == Pooler::Found {
        "A pooler was found between this host and the server".to_owned()
    } else {
        format!("The address sets pooler={}", pooler.name())
    };
    if pooler.shares_sessions() {
        format!("{how}: settings apply per transaction, and workers poll instead of using LISTEN.")
    } else {
        format!("{how}: settings apply per session.")
    }
}

/// The context for messages and remedies.
struct About {
    now: DateTime<Utc>,
    configuration: String,
}

fn finding_json(trouble: &Trouble, about: &About) -> Value {
    let mut value = json!(trouble);
    value["level"] = json!(trouble.level());
    value["message"] = json!(message(trouble, about));
    value["remedy"] = json!(remedy(trouble, about));
    value
}

fn text(troubles: &[Trouble], ahead: Option<TimeDelta>, about: &About, out: &Out) -> String {
    let mut lines = Vec::new();
    for trouble in troubles {
        lines.push(finding(trouble.level(), &message(trouble, about), &remedy(trouble, about), out));
    }
    if let Some(ahead) = ahead {
        lines.push(finding(Level::Warning, &clock_words(ahead), "timedatectl set-ntp true", out));
    }
    if lines.is_empty() {
        return fitted_words("No problems found.", out.width());
    }
    lines.join("\n")
}

/// Formats a note, which is not a problem.
fn note(why: &str, out: &Out) -> String {
    let words = format!(
        "note   runners have no separate control group here ({why}): a process that detaches from its handler can survive kill -9 \
         of the runner"
    );
    fitted_words(&clean_line(&words), out.width())
}

fn finding(level: Level, message: &str, remedy: &str, out: &Out) -> String {
    let word = if level == Level::Critical { "ERROR" } else { "WARN" };
    let message = fitted_words(&clean_line(&format!("{word:<6} {message}")), out.width());
    format!("{message}\n       {}", clean_line(remedy))
}

fn ids(tasks: &[TaskId]) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn message(trouble: &Trouble, about: &About) -> String {
    match trouble {
        Trouble::Store(symptom) => symptom_words(symptom),
        Trouble::StoreClosed { store, error } => format!("the store {store} cannot be opened: {error}"),
        Trouble::Unexamined { part, error } => format!("{part} could not be examined: {error}"),
        Trouble::NothingCreatesRuns { due, oldest_secs } => format!(
            "{} due without a run, the oldest for {}: no create-runs or tick has run, from cron, a timer or a worker",
            if due.count == 1 { "1 task is".to_owned() } else { format!("{} tasks are", count(*due)) },
            distance(TimeDelta::seconds(*oldest_secs))
        ),
        Trouble::Standstill { standstill } => standstill_words(standstill, about.now),
        Trouble::NothingRuns { task_id, class, why } => {
            format!(
                "runs of class {class} are waiting, first that of task {task_id}: {}",
                sentence(why, None, about.now)
            )
        }
        Trouble::LostRuns { count, task_id, why } => {
            format!("{} lost, first that of task {task_id}: {}", plural(*count, "run"), sentence(why, None, about.now))
        }
        Trouble::SilentRunner { runner, slots, silent_secs } => format!(
            "runner {runner} has not renewed its lease for {}, but its process is alive: it is suspended, or cannot reach the \
             database; it occupies {}",
            distance(TimeDelta::seconds(*silent_secs)),
            plural(usize::try_from(*slots).unwrap_or_default(), "slot")
        ),
        Trouble::ClockSet { runner, step_secs } => format!(
            "the database's clock was set {} by {} since runner {runner} renewed its lease",
            if *step_secs < 0 { "back" } else { "forward" },
            distance(TimeDelta::seconds(step_secs.saturating_abs()))
        ),
        Trouble::FutureTasks { tasks } => format!(
            "tasks failed while the clock of the database was ahead, and are not retried before that time: {}",
            ids(tasks)
        ),
        Trouble::FutureSchedules { tasks } => format!(
            "schedules were planned while the clock of the database was ahead, and skip the times until then: {}",
            ids(tasks)
        ),
        Trouble::FutureClaim { run_id, task_id, claimant } => format!(
            "run {run_id} of task {task_id} was claimed or renewed while the clock of the database was ahead; if its claimant \
             {claimant} is gone, it is not rescued before that time"
        ),
        Trouble::HungRuns { class, key, max_running, hung } => hung_words(class, key.as_deref(), *max_running, hung),
        Trouble::MissingScript { class, script } => {
            format!("class {class} executes {}, which does not exist on this host", script.display())
        }
        Trouble::ScheduleProblem { schedule, problem } => {
            format!("[schedule.{schedule}] cannot be applied: {problem}")
        }
        Trouble::ClassProblem { class, problem } => format!("class {class} cannot be executed here: {problem}"),
        Trouble::ClassHeld { class, host, reason } => format!("class {class} is held on {host}: {reason}"),
        Trouble::NoHandler { class } => format!("class {class} has tasks, but no handler on this host"),
        Trouble::OldPause { pause } => pause_words(pause, about.now),
        Trouble::BrokenSchedules { tasks } => format!("schedules that cannot be read: {}", ids(tasks)),
        Trouble::StrandedTasks { tasks } => {
            format!("tasks wait for others that were cancelled or have expired: {}", ids(tasks))
        }
        Trouble::Unreadable { task_id, column, found } => {
            format!("task {task_id} is set aside: its column {column} cannot be read: {found}")
        }
        Trouble::Quarantined { count: number } => {
            let is_one = number.count == 1 && !number.or_more;
            let tasks = if is_one { "1 task is".to_owned() } else { format!("{} tasks are", count(*number)) };
            format!("{tasks} quarantined: crashed too often, or cannot be read")
        }
        Trouble::UnreportedFailures { count: number } => {
            let is_one = number.count == 1 && !number.or_more;
            let tasks = if is_one { "1 task".to_owned() } else { format!("{} tasks", count(*number)) };
            format!("{tasks} will not be retried, and the failure was not reported yet")
        }
        Trouble::KeptForEver { status } => {
            format!("tasks in the status {status} are kept forever, so the tables only grow")
        }
        Trouble::LittleRoom { path, free_bytes } => {
            format!("the disk of {} has only {} left", path.display(), HumanBytes(*free_bytes))
        }
        Trouble::FewInodes { path, free_inodes } => {
            format!(
                "the file system of {} has only {} left for new files",
                path.display(),
                plural(usize::try_from(*free_inodes).unwrap_or(usize::MAX), "inode")
            )
        }
        Trouble::ReadOnlyDisk { path } => format!("the file system of {} is mounted read-only", path.display()),
        Trouble::ChangeableByOthers { problem, .. } => {
            format!("another user can change what taskqueue relies on: {problem}")
        }
        Trouble::LargeLog { path, bytes } => {
            format!("{} has grown to {}: a process keeps a read transaction open", path.display(), HumanBytes(*bytes))
        }
        Trouble::OpenFile { path, mode } => {
            format!("users other than its owner may read or write {} (mode {mode:04o})", path.display())
        }
        Trouble::LeftOutcomes { count, directory } => {
            format!("{} contains {} not yet recorded in the database", directory.display(), plural(*count, "outcome"))
        }
        Trouble::OtherOutcomes { count, directory, database } => {
            format!("{} contains {} for another address, {database}", directory.display(), plural(*count, "outcome"))
        }
        Trouble::OtherVersion { runner, version } => {
            format!("runner {runner} has version {version}, this command has {}", env!("CARGO_PKG_VERSION"))
        }
    }
}

/// Returns a note about a Galera cluster.
pub(crate) fn cluster_words(nodes: i64) -> String {
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    format!(
        "the database is a Galera cluster ({nodes}): all programs that write the tables of taskqueue must connect to the same \
         node, or the cluster stalls"
    )
}

fn symptom_words(symptom: &Symptom) -> String {
    match symptom {
        Symptom::Setting { name, value, wanted } => {
            format!("the database has {name} = {value}; it should be {wanted}")
        }
        Symptom::MissingIndex { name, .. } => format!("the index {name} is missing: queries that use it become slow"),
        Symptom::LongTransaction { secs, who } => {
            format!("a transaction has been open for {}: {who}", distance(TimeDelta::seconds(*secs)))
        }
        Symptom::DeadRows { table, dead, live } => {
            format!("{table} has {dead} dead rows and {live} live rows, and was not vacuumed")
        }
        Symptom::Locked { who, .. } => {
            format!(
                "{who} has locked the store for a second: until it unlocks it, nothing can be queued, claimed or recorded"
            )
        }
        Symptom::Full { error } => {
            format!("the server has no space left, so that nothing can be queued, claimed or recorded: {error}")
        }
        Symptom::Cluster { nodes } => cluster_words(*nodes),
    }
}

/// Formats the runs that occupy all slots of a limit.
fn hung_words(class: &str, key: Option<&str>, max_running: i32, hung: &[HungRun]) -> String {
    let limit = match key {
        Some(key) => format!("the key {key} allows {max_running} at once"),
        None => format!("its limit is {max_running} running"),
    };
    format!("runs of class {class} are waiting: {limit}; {}", silent_words(hung))
}

/// Returns a command that fixes the problem, or shows more.
fn remedy(trouble: &Trouble, about: &About) -> String {
    match trouble {
        Trouble::Store(symptom) => symptom_remedy(symptom),
        Trouble::StoreClosed { .. } | Trouble::Unexamined { .. } => "taskqueue status".to_owned(),
        Trouble::NothingCreatesRuns { .. } | Trouble::LostRuns { .. } | Trouble::LeftOutcomes { .. } => {
            "taskqueue create-runs".to_owned()
        }
        Trouble::OtherOutcomes { database, .. } => format!("taskqueue --database {} create-runs", shell_word(database)),
        Trouble::Standstill { standstill } => standstill_remedy(standstill),
        Trouble::NothingRuns { task_id, .. } => format!("taskqueue explain {task_id}"),
        Trouble::HungRuns { hung, .. } => cancel_hung(hung),
        Trouble::ClassProblem { .. } | Trouble::MissingScript { .. } | Trouble::NoHandler { .. } => {
            format!("${{EDITOR:-vi}} {}", shell_word(&about.configuration))
        }
        Trouble::ScheduleProblem { .. } => "taskqueue schedule diff".to_owned(),
        Trouble::ClassHeld { class, .. } => format!("taskqueue class release {}", shell_word(class)),
        Trouble::OldPause { pause } => resume_command(&pause.scope),
        Trouble::BrokenSchedules { tasks } => format!("taskqueue schedule show {}", ids(tasks)),
        Trouble::ClockSet { .. } => "taskqueue events --kind clock-set".to_owned(),
        Trouble::FutureTasks { tasks } => format!("taskqueue retry {}", ids(tasks)),
        Trouble::FutureSchedules { tasks } => format!("taskqueue schedule resume {}", ids(tasks)),
        Trouble::FutureClaim { run_id, .. } => format!("taskqueue worker release {run_id} --force"),
        Trouble::StrandedTasks { tasks } => format!("taskqueue explain {}", ids(tasks)),
        Trouble::Unreadable { task_id, .. } => format!("taskqueue status {task_id}"),
        Trouble::Quarantined { .. } => "taskqueue status status=quarantined".to_owned(),
        Trouble::UnreportedFailures { .. } => "taskqueue failures".to_owned(),
        Trouble::KeptForEver { .. } => "taskqueue setting".to_owned(),
        Trouble::LittleRoom { path, .. } => format!("df -h {}", shell_word(&path.to_string_lossy())),
        Trouble::FewInodes { path, .. } => format!("df -i {}", shell_word(&path.to_string_lossy())),
        Trouble::ReadOnlyDisk { path } => format!("findmnt -T {}", shell_word(&path.to_string_lossy())),
        Trouble::ChangeableByOthers { path, .. } => format!("ls -ld {}", shell_word(&path.to_string_lossy())),
        Trouble::LargeLog { path, .. } => format!("fuser -v {}", shell_word(&path.to_string_lossy())),
        Trouble::OpenFile { path, mode } => {
            let forbidden = if mode & 0o022 != 0 { "go-w" } else { "go=" };
            format!("chmod {forbidden} {}", shell_word(&path.to_string_lossy()))
        }
        Trouble::SilentRunner { .. } | Trouble::OtherVersion { .. } => "taskqueue runner".to_owned(),
    }
}

fn symptom_remedy(symptom: &Symptom) -> String {
    match symptom {
        Symptom::Setting { name, wanted, .. } if name == "journal_mode" => format!("PRAGMA {name} = {wanted};"),
        Symptom::Setting { name, wanted, .. } => format!("# in the configuration of the database: {name} = {wanted}"),
        Symptom::MissingIndex { statement, .. } => statement.clone(),
        Symptom::LongTransaction { .. } => "# to end it, run the statement in parentheses".to_owned(),
        Symptom::DeadRows { table, .. } => format!("VACUUM \"{table}\";"),
        Symptom::Locked { path, .. } => format!("fuser -v {}", shell_word(&path.to_string_lossy())),
        Symptom::Full { .. } => "df -h    # on the server; then run taskqueue doctor again".to_owned(),
        Symptom::Cluster { .. } => "# name the same node in every address".to_owned(),
    }
}
