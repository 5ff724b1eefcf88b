//! Seeded bugs: each is a patch with one defect, built from a copy of the work tree, which its campaign must detect. They prove
//! that the oracle can see the violations that it checks for.
//!
//! The first line of a patch: `CAMPAIGN on ENGINE: what goes wrong`. With `ENGINE, plain`, transitions are not stored, because
//! the bug shows only then.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::campaign::{self, Campaign};
use super::options::{ENGINES, Options};

/// How long a campaign may search for one bug.
const SEARCH: Duration = Duration::from_secs(150);

/// The result for a seeded bug.
pub struct Verdict {
    pub name: String,
    /// Campaign and engine.
    pub caught_by: Option<String>,
    /// How many faults were injected until then.
    pub faults: usize,
    pub took: Duration,
    /// The first violation, or why there is none.
    pub said: String,
}

/// A patch and the campaign that must detect it.
struct Bug {
    name: String,
    patch: PathBuf,
    campaign: String,
    engine: String,
    /// Whether it shows only if transitions are not stored.
    is_plain: bool,
}

/// Builds and hunts every bug that the options select.
pub fn hunt(campaigns: &[&'static Campaign], options: &Options, bar: &ProgressBar) -> Vec<Verdict> {
    let bugs = wanted(options);
    if bugs.is_empty() {
        return Vec::new();
    }
    let workshop = Workshop::new();
    let verdict = |bug: &Bug| {
        bar.set_message(format!("bug {}", bug.name));
        let started = Instant::now();
        let hunted = workshop.build(bug).and_then(|program| hunt_one(bug, campaigns, options, program, bar));
        let (caught_by, faults, said) = match hunted {
            Ok((faults, Some(said))) => (Some(format!("{} on {}", bug.campaign, bug.engine)), faults, said),
            Ok((faults, None)) => (None, faults, "no violation".to_owned()),
            Err(problem) => (None, 0, problem),
        };
        if caught_by.is_none() {
            bar.suspend(|| eprintln!("the seeded bug {} was not caught by {}: {said}", bug.name, bug.campaign));
        }
        Verdict { name: bug.name.clone(), caught_by, faults, took: started.elapsed(), said }
    };
    bugs.iter().map(verdict).collect()
}

pub fn names() -> Vec<String> {
    all().into_iter().map(|bug| format!("bug:{} ({} on {})", bug.name, bug.campaign, bug.engine)).collect()
}

/// The build of a bug takes a minute, so a sample of all campaigns has none.
fn wanted(options: &Options) -> Vec<Bug> {
    let wants_all = options.wants("bugs") && !(options.is_quick() && options.only.is_empty());
    let is_wanted = |bug: &Bug| wants_all || options.only.contains(&format!("bug:{}", bug.name));
    let is_here = |bug: &Bug| options.engine.is_none_or(|engine| engine.name() == bug.engine);
    all().into_iter().filter(|bug| is_wanted(bug) && is_here(bug)).collect()
}

fn all() -> Vec<Bug> {
    let directory = Path::new(env!("REPOSITORY_DIR")).join("tests/fault_suite/bugs");
    let mut bugs: Vec<Bug> =
        std::fs::read_dir(directory).unwrap().map(|entry| Bug::read(&entry.unwrap().path())).collect();
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    bugs
}

impl Bug {
    fn read(patch: &Path) -> Self {
        let text = std::fs::read_to_string(patch).unwrap();
        let head =
            text.lines().next().and_then(|line| line.split_once(':')).and_then(|(who, _)| who.split_once(" on "));
        let (campaign, engine) =
            head.unwrap_or_else(|| panic!("{}: the first line names no campaign and engine", patch.display()));
        let plain = engine.strip_suffix(", plain");
        Self {
            name: patch.file_stem().unwrap().to_string_lossy().into_owned(),
            patch: patch.to_owned(),
            campaign: campaign.to_owned(),
            engine: plain.unwrap_or(engine).to_owned(),
            is_plain: plain.is_some(),
        }
    }
}

/// Hunts one bug. Returns how many faults were injected, and the first violation.
fn hunt_one(
    bug: &Bug,
    campaigns: &[&'static Campaign],
    options: &Options,
    program: PathBuf,
    bar: &ProgressBar,
) -> Result<(usize, Option<String>), String> {
    let campaign = campaigns.iter().find(|campaign| campaign.name == bug.campaign);
    let campaign = campaign.ok_or(format!("there is no campaign {}", bug.campaign))?;
    let engine = ENGINES.into_iter().find(|engine| engine.name() == bug.engine);
    let engine = engine.ok_or(format!("there is no engine {}", bug.engine))?;
    let until = Some(Instant::now() + SEARCH);
    let options =
        Options { program, until, first: true, all: true, is_hunt: true, is_plain: bug.is_plain, ..options.clone() };
    let tally = campaign::run(campaign, engine, &options, bar);
    Ok((tally.faults, tally.violations.into_iter().next()))
}

/// Where the bugs are built: a copy of the work tree with a separate target directory. Cargo considers the copy the same
/// package as the original, so in one target directory it would replace the tested program. Third-party crates are linked, not
/// compiled again.
struct Workshop {
    source: PathBuf,
    tree: PathBuf,
    target: PathBuf,
    /// Where the built programs are kept.
    programs: PathBuf,
    /// The profile of this program, whose crates are already built.
    profile: String,
}

impl Workshop {
    fn new() -> Self {
        // target/faults/deps/fault_suite-1234
        let exe = std::env::current_exe().unwrap();
        let built = exe.ancestors().nth(2).unwrap();
        let profile = built.file_name().unwrap().to_str().unwrap().to_owned();
        let place = built.parent().unwrap().join("fault-bugs").join(&profile);
        let (tree, target, programs) = (place.join("tree"), place.join("target"), place.join("programs"));
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::create_dir_all(&programs).unwrap();
        if !target.exists() {
            let half = place.join("half");
            let _ = std::fs::remove_dir_all(&half);
            std::fs::create_dir_all(half.join(&profile)).unwrap();
            copy_crates(built, &half.join(&profile));
            std::fs::rename(half, &target).unwrap();
        }
        Self { source: PathBuf::from(env!("REPOSITORY_DIR")), tree, target, programs, profile }
    }

    fn build(&self, bug: &Bug) -> Result<PathBuf, String> {
        self.copy_tree()?;
        // The copy may be inside another repository, to which git would otherwise apply the patch.
        let ceiling = self.tree.parent().unwrap();
        let mut apply = Command::new("git");
        apply.args(["apply", "-p1"]).arg(&bug.patch).current_dir(&self.tree).env("GIT_CEILING_DIRECTORIES", ceiling);
        run(apply, "the patch does not apply")?;
        let mut cargo = Command::new("cargo");
        cargo
            .args([
                "build",
                "--quiet",
                "--locked",
                "--profile",
                // The only profile whose directory has another name.
                if self.profile == "debug" { "dev" } else { &self.profile },
                "--package",
                "taskqueue-cli",
                "--features",
                "fault-points",
                "--bin",
                "taskqueue",
                // Dependencies of tests change features of third-party crates, also of Diesel: without this they would be
                // rebuilt.
                "--bench",
                "gate",
            ])
            .env("CARGO_TARGET_DIR", &self.target)
            .current_dir(&self.tree);
        run(cargo, "it does not compile")?;
        let program = self.programs.join(&bug.name);
        // Under a new name, because the next build must not change a running program.
        let _ = std::fs::remove_file(&program);
        std::fs::copy(self.target.join(&self.profile).join("taskqueue"), &program)
            .map_err(|error| error.to_string())?;
        Ok(program)
    }

    /// Makes the copy equal to the work tree: the copy outlives the revision that it was made of, and the last bug. Writes only
    /// differences, so that cargo compiles only these.
    fn copy_tree(&self) -> Result<(), String> {
        let mut list = Command::new("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&self.source);
        let files = run(list, "the files of the work tree cannot be listed")?;
        let mut copied = HashSet::new();
        for name in files.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (self.source.join(name), self.tree.join(name));
            // A file that was removed and is still in the index.
            let Ok(content) = std::fs::read(&from) else { continue };
            if !std::fs::read(&to).is_ok_and(|present| present == content) {
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::write(&to, content).map_err(|error| format!("{}: {error}", to.display()))?;
            }
            copied.insert(to);
        }
        remove_all_but(&copied, &self.tree).map_err(|error| format!("{}: {error}", self.tree.display()))
    }
}

fn remove_all_but(kept: &HashSet<PathBuf>, directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_all_but(kept, &path)?;
            // An empty folder may have a meaning, like that of a migration, so empty folders are removed too.
            let _ = std::fs::remove_dir(&path);
        } else if !kept.contains(&path) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Gives a target directory the crates of another one. A build there does not change the original files.
fn copy_crates(built: &Path, copy: &Path) {
    for (part, how) in [("build", "-a"), ("deps", "-al"), (".fingerprint", "-a")] {
        let copied = Command::new("cp").arg(how).arg(built.join(part)).arg(copy.join(part)).status();
        assert!(copied.unwrap().success(), "{} cannot be copied", built.display());
    }
    for entry in std::fs::read_dir(copy.join("deps")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.trim_start_matches("lib").starts_with("taskqueue") {
            std::fs::remove_file(&path).unwrap();
        }
    }
}

fn run(mut command: Command, what: &str) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let first = stderr.lines().find(|line| line.contains("error")).unwrap_or_default();
    Err(format!("{what}: {first}"))
}
