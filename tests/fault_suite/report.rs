//! The tables at the end.

use comfy_table::{ContentArrangement, Table, presets};

use super::bugs::Verdict;
use super::campaign::Tally;

pub struct Line {
    pub campaign: &'static str,
    pub engine: &'static str,
    pub tally: Tally,
}

pub fn print(lines: &[Line], bugs: &[Verdict], seed: u64) {
    if !lines.is_empty() {
        let mut table = new_table(&["fault", "engine", "trials", "violations", "seconds", "notes"]);
        for line in lines {
            table.add_row([
                line.campaign.to_owned(),
                line.engine.to_owned(),
                line.tally.faults.to_string(),
                line.tally.violations.len().to_string(),
                format!("{:.1}", line.tally.took.as_secs_f64()),
                line.tally.notes.join("; "),
            ]);
        }
        println!("{table}");
    }
    if !bugs.is_empty() {
        let mut table = new_table(&["seeded bug", "caught by", "after faults", "seconds", "what was said"]);
        for bug in bugs {
            table.add_row([
                bug.name.clone(),
                bug.caught_by.clone().unwrap_or_else(|| "NOT CAUGHT".to_owned()),
                bug.faults.to_string(),
                format!("{:.1}", bug.took.as_secs_f64()),
                bug.said.clone(),
            ]);
        }
        println!("{table}");
    }
    println!("seed {seed}: repeat everything with --seed {seed}");
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    table
}
