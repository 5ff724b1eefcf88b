//! A full disk: under the SQLite store, under the spool, or under both. Uses file systems of a few megabytes, which only the
//! worker sees and which are removed with it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::database::{Database, EngineUnderTest};
use super::records::Fate;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "full-disk",
    what: "no space under the store, under the spool, or under both, and space again",
    engines: &[EngineUnderTest::Sqlite],
    run,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Store,
    Spool,
    Both,
}

/// How long a runner waits for space before it is signalled.
const PATIENCE: Duration = Duration::from_secs(2);
/// Commands in one trial without space.
const COMMANDS: usize = 8;

fn run(job: &Job<'_>) {
    if let Err(why) = own_mounts() {
        return job.impossible(&why);
    }
    for trial in job.trials(6, 120) {
        let full = [Full::Store, Full::Spool, Full::Both][trial % 3];
        let mut rng = job.rng(trial);
        let home = tempfile::tempdir().unwrap();
        let (disk, state) = (home.path().join("disk"), home.path().join(".local/state"));
        let small = Disk::mount(&disk, 8 << 10).and_then(|store| Ok([store, Disk::mount(&state, 256)?]));
        let disks = match small {
            Ok(disks) => disks,
            Err(why) => return job.impossible(&why),
        };
        let database = Database::create(job.engine, &disk, "").unwrap();
        let mut stage = Stage::with_database(job.engine, &job.options.program, home, database);
        job.prepare(&stage);
        job.trial(trial, &mut stage, |stage| {
            work_without_space(stage, full, &disks, &mut rng);
            job.count(1);
        });
        drop(stage);
    }
}

fn work_without_space(stage: &Stage, full: Full, disks: &[Disk; 2], rng: &mut Rng) {
    let [store, spool] = disks;
    stage.may_fail.set(true);
    // An outcome that can be written nowhere is lost, and the run is repeated.
    stage.outcomes_are_kept.set(full != Full::Both);
    for _ in 0..4 {
        stage.queue(if rng.below(2) == 0 { "note" } else { "report" });
    }
    assert!(stage.command(&["create-runs"]).run().is_ok());
    let fill = |rng: &mut Rng| {
        if full != Full::Spool {
            store.fill(rng.below(40) << 10);
        }
        if full != Full::Store {
            spool.fill(rng.below(3) << 8);
        }
    };
    fill(rng);
    for _ in 0..COMMANDS {
        let marker = stage.marker();
        let data = format!("{{\"m\":\"{marker}\",\"pad\":\"{}\"}}", "x".repeat(rng.below(6_000)));
        let call = match rng.below(4) {
            0 => stage.command(&["create-runs"]).run(),
            1 => {
                let mut running = stage.command(&["process-run", "--drain"]).spawn();
                // It may have an outcome to record, and wait for space.
                let waits = !running.has_exited(PATIENCE);
                if waits {
                    disks.iter().for_each(Disk::empty);
                }
                let call = running.wait();
                if waits {
                    fill(rng);
                }
                call
            }
            2 => {
                let line = format!("{{\"class\":\"note\",\"data\":{data}}}\n");
                stage.command(&["queue", "--batch", "-"]).stdin(line.repeat(3)).queues(&marker, 3).run()
            }
            _ => stage.command(&["queue", "note", &data]).queues(&marker, 1).run(),
        };
        let told = ["disk is full", "is the disk full", "No space left"];
        let is_told = call.is_ok() || told.iter().any(|text| call.stderr.contains(text));
        assert!(is_told && matches!(call.fate, Fate::Exited(0 | 69)), "{full:?}: {call:?}");
    }
    disks.iter().for_each(Disk::empty);
}

/// Gives this thread and its children private file systems.
#[allow(deprecated, reason = "the new one is unsafe because of shared descriptors, which this leaves alone")]
fn own_mounts() -> Result<(), String> {
    use rustix::thread::{UnshareFlags, unshare};
    unshare(UnshareFlags::NEWNS).map_err(|error| format!("no mounts of our own: {error}"))?;
    tell(Command::new("mount").args(["--make-rprivate", "/"]))
}

fn tell(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// A small file system.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: &Path, kib: u32) -> Result<Self, String> {
        std::fs::create_dir_all(path).unwrap();
        let options = format!("size={kib}k,mode=700");
        tell(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path))?;
        Ok(Self { path: path.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Leaves this many bytes free.
    fn fill(&self, free_bytes: usize) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        let block = [0; 1 << 10];
        while file.write_all(&block).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(u64::try_from(free_bytes).unwrap())).unwrap();
    }

    fn empty(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = tell(Command::new("umount").arg("--lazy").arg(&self.path));
    }
}
