//! What the program asks of the kernel for each run, or for each process that it looks at.

use std::hint::black_box;

use criterion::Criterion;
use taskqueue_host::files::spool::Spool;
use taskqueue_host::random::{ordered_token, token};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::marks::Marks;

/// About what the outcome of a run takes.
const RECORD_BYTES: usize = 400;
/// Records between two times that a worker clears its file.
const RECORDS: usize = 100;

pub(crate) fn measure(criterion: &mut Criterion) {
    // Where a spool lies, and not in memory: what it costs to write to a disk is what is asked.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let me = ProcessIdentity::own().unwrap();
    let mut group = criterion.benchmark_group("kernel");
    group.bench_function("a token", |bench| bench.iter(token));
    group.bench_function("a token in order", |bench| bench.iter(ordered_token));
    group.bench_function("the identity of a process", |bench| bench.iter(ProcessIdentity::own));
    group.bench_function("whether a process lives", |bench| bench.iter(|| black_box(&me).liveness()));
    let marks = Marks::begin(directory.path(), &me.to_string(), 8).unwrap();
    group.bench_function("the mark of a slot", |bench| bench.iter(|| marks.set(black_box(3), "0123456789abcdef")));
    let record = "x".repeat(RECORD_BYTES);
    let mut file = Spool::new(directory.path(), "parts").take().unwrap();
    group.bench_function("a hundred outcomes in the page cache", |bench| {
        bench.iter(|| {
            (0..RECORDS).for_each(|_| file.put(&record).unwrap());
            file.clear().unwrap();
        });
    });
    group.bench_function("an outcome on the disk", |bench| {
        bench.iter(|| {
            file.append(&record).unwrap();
            file.clear().unwrap();
        });
    });
    group.finish();
}
