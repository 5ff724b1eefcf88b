//! `taskqueue setting`

use clap::{Args, Subcommand};

use crate::commands::options::reason::ReasonArgs;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::output::table::render;
use crate::session::Session;
use taskqueue_domain::settings::Setting;
use taskqueue_engine::change::settings;

/// List and change the settings that all hosts share
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue setting\n  taskqueue setting get TaskQueueRunnerLimit\n  taskqueue setting set TaskQueueRunnerLimit 16"
)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    action: Option<SettingsVerb>,
    #[command(flatten)]
    list: ListOptions,
}

const SETTINGS: ListKind =
    ListKind { columns: &["name", "value", "default", "low", "high", "meaning"], ids: &["name"] };

#[derive(Debug, Subcommand)]
enum SettingsVerb {
    /// List all settings with their ranges
    List(ListOptions),
    /// Print the value of a setting
    Get {
        /// Name of the setting
        name: String,
    },
    /// Change one or more settings
    ///
    /// Several settings are checked together and set in one transaction.
    #[command(
        after_help = "Examples:\n  taskqueue setting set TaskQueueRunnerLimit 16\n  taskqueue setting set TaskQueueLeaseTime=6 TaskQueueLeaseRenewal=2"
    )]
    Set {
        /// NAME VALUE, or NAME=VALUE once for each setting; a value is a whole number in the range of its setting
        #[arg(required = true, value_name = "NAME=VALUE", allow_negative_numbers = true)]
        values: Vec<String>,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) fn run(session: Session, args: &SettingsArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        None => return list(session, &args.list, out),
        Some(SettingsVerb::List(options)) => return list(session, options.or(&args.list), out),
        Some(_) => args.list.refuse_without_list()?,
    }
    match &args.action {
        Some(SettingsVerb::Get { name }) => get(session, name, out),
        Some(SettingsVerb::Set { values, reason }) => set(session, values, reason, out),
        None | Some(SettingsVerb::List(_)) => Ok(DONE),
    }
}

fn set(session: Session, words: &[String], reason: &ReasonArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut changes = Vec::with_capacity(words.len());
    for (name, value) in pairs(words)? {
        changes.push((find(name)?, value.to_owned()));
    }
    let set = session.open_or_make()?.because(reason.text(), |ctx| settings::set_together(ctx, &changes))?;
    for (setting, value) in set {
        out.json_if_asked(&json(setting, &value.to_string()))?;
        out.say(&format!("{setting} is {value}"));
    }
    Ok(DONE)
}

/// Parses names and values: `NAME VALUE`, or one or more `NAME=VALUE`.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, CliError> {
    if let [name, value] = words
        && !name.contains('=')
        && !value.contains('=')
    {
        return Ok(vec![(name, value)]);
    }
    match words.iter().find(|word| !word.contains('=')) {
        None => Ok(words.iter().filter_map(|word| word.split_once('=')).collect()),
        Some(bad) => Err(CliError::usage(format!("\"{bad}\" is not NAME=VALUE"))
            .with_hint("taskqueue setting set TaskQueueLeaseTime=6 TaskQueueLeaseRenewal=2")),
    }
}

fn list(session: Session, options: &ListOptions, out: &mut Out) -> anyhow::Result<u8> {
    let listing = Listing::of(options, &SETTINGS, out)?;
    let all = settings::list(&mut session.open_to_read(out)?)?;
    if print_for_programs(listing, all.iter().map(|(setting, value)| json(*setting, value)), out)? {
        return Ok(DONE);
    }
    let rows = all.into_iter().map(|(setting, value)| {
        let (low, high) = setting.range();
        vec![setting.name().into(), value.into(), format!("{low} to {high}").into(), setting.purpose().into()]
    });
    out.data(render(out, &["SETTING", "VALUE", "RANGE", "MEANING"], rows.collect(), &[3, 2]))?;
    Ok(DONE)
}

fn get(session: Session, name: &str, out: &mut Out) -> anyhow::Result<u8> {
    let setting = find(name)?;
    let all = settings::list(&mut session.open_to_read(out)?)?;
    for (found, value) in all.into_iter().filter(|(found, _)| *found == setting) {
        out.json_or(&json(found, &value), clean_line(&value))?;
    }
    Ok(DONE)
}

fn find(name: &str) -> Result<Setting, CliError> {
    settings::find(name).map_err(|error| CliError::from(error).with_hint("`taskqueue setting` lists all settings"))
}

fn json(setting: Setting, value: &str) -> serde_json::Value {
    let (low, high) = setting.range();
    serde_json::json!({
        "name": setting.name(), "value": value, "default": setting.default_value(), "low": low, "high": high,
        "meaning": setting.purpose(),
    })
}
