//! `taskqueue doctor`

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use serde_json::{Value, json};

use crate::commands::options::selected::if_gone;
use crate::commands::options::task_options::duration_option;
use crate::error::CliError;
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::session::Session;
use taskqueue_domain::monitoring::thresholds::Level;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::records::HeldClaim;
use taskqueue_engine::inspect::doctor::{OwnFiles, Symptom, Trouble, examine, examine_closed, list_claims};
use taskqueue_engine::{Engine, Pooler, why_no_own_group};
use taskqueue_views::clock::{clock_ahead, clock_words};
use taskqueue_views::human::{fitted_words, relative};
use taskqueue_views::shell_word::shell_word;
use taskqueue_views::words::hung::cancel_hung;
use taskqueue_views::words::pause_words::resume_command;
use taskqueue_views::words::standstill::standstill_remedy;
use taskqueue_views::words::trouble::{ids, trouble_words};
use taskqueue_views::words::why::{deadline_words, holder};

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
            let error = CliError::from(error).message;
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
    value["message"] = json!(trouble_words(trouble, about.now));
    value["remedy"] = json!(remedy(trouble, about));
    value
}

fn text(troubles: &[Trouble], ahead: Option<TimeDelta>, about: &About, out: &Out) -> String {
    let mut lines = Vec::new();
    for trouble in troubles {
        lines.push(finding(trouble.level(), &trouble_words(trouble, about.now), &remedy(trouble, about), out));
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
        Trouble::InvalidSettings { settings, .. } => set_defaults(settings),
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

/// Returns the command that sets the defaults.
fn set_defaults(names: &[&str]) -> String {
    let settings = names.iter().filter_map(|name| Setting::parse(name));
    let words: Vec<String> = settings.map(|setting| format!("{setting}={}", setting.default_value())).collect();
    format!("taskqueue setting set {}", words.join(" "))
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
