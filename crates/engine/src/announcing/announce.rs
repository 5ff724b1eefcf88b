//! Notices and hooks. Processes that create runs collect notices and send them; the process that recorded the end of a run
//! starts its hook.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::announcing::final_failures::print_final_failures;
use crate::announcing::outside_program::ProgramCall;
use crate::config::Notify;
use crate::context::Context;
use crate::error::EngineResult;
use crate::handler::command::{CommandHandler, CommandSource};
use taskqueue_domain::limits::confinement::Confinement;
use taskqueue_domain::monitoring::notice::{Digest, Notice};
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::decision::rule_without_retry;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::text::outside_text::to_clean_json;
use taskqueue_host::files::append_file::open_to_append;
use taskqueue_store::{NoticeChoice, RunEnd};

/// The timeout of a notification program; all processes that create runs on this host wait for it.
const TELL_SECS: i64 = 60;
/// The timeout of a hook program; its runner waits for it.
const HOOK_SECS: i64 = 30;
const KILL_GRACE: Duration = Duration::from_secs(2);
const OUTPUT_LIMIT_BYTES: usize = 4 << 10;

/// The standard input of a notification program.
#[derive(Serialize)]
struct NotifierMessage<'a> {
    event: &'static str,
    database: String,
    host: &'a str,
    #[serde(flatten)]
    digest: &'a Digest,
}

/// The standard input of a hook program.
#[derive(Serialize)]
struct HookInput<'a> {
    event: &'static str,
    task_id: TaskId,
    run_id: RunId,
    class: &'a str,
    attempts: i32,
    failed_retries: i32,
    max_retries: i32,
    decision: &'a str,
    error_code: &'a str,
    error_message: &'a str,
    results: Option<Box<RawValue>>,
    host: &'a str,
}

/// Sends the notices as configured, or prints final failures on standard error if nothing is configured. Returns why sending
/// failed, if so; it is retried then. A host with `[notify]` also records that it sends notices, even if there are none.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn tell_notices(ctx: &mut Context, has_notices: bool) -> EngineResult<Option<String>> {
    let problem = match ctx.announcements.notify.clone() {
        Some(notify) => tell_taken(ctx, &notify)?,
        None if !has_notices => return Ok(None),
        None => {
            print_final_failures(ctx)?;
            None
        }
    };
    // Also on a host with `[notify]`, because its program may always fail. After sending, so that notices from an outage of
    // this host are sent once.
    ctx.store.remove_old_notices()?;
    Ok(problem)
}

fn tell_taken(ctx: &mut Context, notify: &Notify) -> EngineResult<Option<String>> {
    ctx.store.leave_notices_to_notify_hosts()?;
    // No other process starts the program while ours may still be running.
    let taken = ctx.store.take_notices(NoticeChoice::All, notify.every_secs.max(2 * TELL_SECS))?;
    let Some(digest) = Digest::of(&taken.notices) else { return Ok(None) };
    fault_point!("notices.taken");
    let problem = tell(ctx, notify, &digest, &taken.notices)?;
    fault_point!("notices.told");
    if problem.is_none() {
        ctx.store.remove_told_notices(&taken)?;
    }
    ctx.store.tell_again_after(notify.every_secs)?;
    Ok(problem)
}

/// Runs the program first, then writes the file. A failure of either is retried, and a program that fails for a day must not
/// add a copy of each line for every try. For the same reason a file that cannot be opened prevents the program from sending
/// the same notices repeatedly.
fn tell(ctx: &Context, notify: &Notify, digest: &Digest, notices: &[Notice]) -> EngineResult<Option<String>> {
    let not_logged =
        |path: &Path, error: std::io::Error| format!("notices cannot be written to {}: {error}", path.display());
    let log = match notify.log.as_deref().map(|path| (path, open_to_append(path))) {
        Some((path, Err(error))) => return Ok(Some(not_logged(path, error))),
        Some((path, Ok(file))) => Some((path, file)),
        None => None,
    };
    if let Some(problem) = start_program(ctx, notify, digest)? {
        return Ok(Some(problem));
    }
    Ok(log.and_then(|(path, file)| append(file, notices).err().map(|error| not_logged(path, error))))
}

/// Runs the notification program. Returns why it failed, if it did.
fn start_program(ctx: &Context, notify: &Notify, digest: &Digest) -> EngineResult<Option<String>> {
    if notify.argv.is_empty() {
        return Ok(None);
    }
    let message =
        NotifierMessage { event: "notices", database: ctx.store.url().to_string(), host: &ctx.me.host, digest };
    let program = ConfiguredProgram { argv: &notify.argv, user: notify.user.as_deref(), limit_secs: TELL_SECS };
    let problem = program.run(ctx, &to_json(&message), TaskId(0), RunId(0))?;
    Ok(problem.map(|why| format!("{} notices were not delivered: {why}", digest.count)))
}

/// Writes one line for each notice.
fn append(mut log: File, notices: &[Notice]) -> std::io::Result<()> {
    let lines: String = notices.iter().map(|notice| to_json(notice) + "\n").collect();
    log.write_all(lines.as_bytes())
}

/// Starts the hook for this end of a run, if there is one. If this process dies before, the hook does not run; the tables
/// contain everything that must not be missed. The end is already recorded, so a failure here is reported and affects nothing
/// else.
pub(crate) fn start_hook(ctx: &mut Context, task_id: TaskId, run_id: RunId, end: &RunEnd) {
    let problem = match hook_problem(ctx, task_id, run_id, end) {
        Ok(problem) => problem,
        Err(error) => Some(format!("the hook of run {run_id} was not started: {error}")),
    };
    ctx.hook_problem = problem.or_else(|| ctx.hook_problem.take());
}

/// Runs the hook. Returns why it failed, if it did.
fn hook_problem(ctx: &mut Context, task_id: TaskId, run_id: RunId, end: &RunEnd) -> EngineResult<Option<String>> {
    let may_want = match end.event {
        RunEvent::Succeed => ctx.announcements.hook(AttemptOutcome::Success).is_some(),
        RunEvent::Fail | RunEvent::TimeOut => !ctx.announcements.hooks.is_empty(),
        RunEvent::Claim | RunEvent::Cancel | RunEvent::Expire | RunEvent::Release => false,
    };
    if !may_want {
        return Ok(None);
    }
    let task = ctx.store.get_task(task_id)?;
    let settings = ctx.store.recent_settings()?;
    let kind = AttemptOutcome::of(end.event, task.is_settled());
    let Some(argv) = ctx.announcements.hook(kind) else { return Ok(None) };
    let decision =
        if kind == AttemptOutcome::Failed { rule_without_retry(&end.decision) } else { end.decision.clone() };
    let input = HookInput {
        event: kind.as_str(),
        task_id,
        run_id,
        class: task.class.as_str(),
        attempts: task.attempts,
        failed_retries: task.failed_retries,
        max_retries: settings.retries_of(&task),
        decision: &decision,
        error_code: &end.error_code,
        error_message: &end.error_message,
        results: end.results.clone().and_then(|json| RawValue::from_string(json).ok()),
        host: &ctx.me.host,
    };
    let program = ConfiguredProgram { argv, user: ctx.announcements.hook_user.as_deref(), limit_secs: HOOK_SECS };
    let problem = program.run(ctx, &to_json(&input), task_id, run_id)?;
    fault_point!("hook.ended");
    Ok(problem.map(|why| format!("the hook \"{}\" of run {run_id}: {why}", kind.as_str())))
}

/// A configured program that receives a message.
struct ConfiguredProgram<'a> {
    argv: &'a [String],
    user: Option<&'a str>,
    limit_secs: i64,
}

impl ConfiguredProgram<'_> {
    /// Runs the program like a handler: a clean environment, the input, a timeout. Returns why it failed, if it did.
    fn run(&self, ctx: &Context, input: &str, task_id: TaskId, run_id: RunId) -> EngineResult<Option<String>> {
        if let Err(why) = ctx.handlers.check_user("in its table or at the top of the file", self.user) {
            return Ok(Some(why));
        }
        let command = CommandHandler {
            argv: self.argv.to_vec(),
            source: CommandSource::Configuration,
            cwd: Some("/".into()),
            env: Vec::new(),
            pass_env: Vec::new(),
            confinement: Confinement { user: self.user.map(str::to_owned), ..Confinement::default() },
            kill_grace: KILL_GRACE,
            output_limit_bytes: OUTPUT_LIMIT_BYTES,
        };
        let call = ProgramCall { class: TaskClass::of_hooks(), task_id, run_id, input, limit_secs: self.limit_secs };
        call.run(&command)
    }
}

/// Serializes our own types, which cannot fail. A program may print the text, or put it in a mail: it has the same escapes as
/// `--json`.
fn to_json(value: &impl Serialize) -> String {
    to_clean_json(value).unwrap_or_default()
}
