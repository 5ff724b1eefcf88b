//! The handlers of the campaigns. Each appends to a log outside the database when it begins and before it ends. They use only
//! shell builtins, and such a short line is appended in one write.

use std::path::Path;

use super::records::Effect;

/// Writes `start`, `alive` or `end CODE` with task, run, PID and the time since boot.
const NOTE: &str = r#"note() { read up rest </proc/uptime; echo "$1 $TASKQUEUE_TASK_ID $TASKQUEUE_RUN_ID $$ $up $2" >>"$EFFECTS"; }; "#;

/// The classes with coprocesses.
pub const COPROCESSES: [&str; 2] = ["kept", "several"];

/// Parses the run that a coprocess receives, and answers with its id, token and data.
const TALK: &str = r#"told() { TASKQUEUE_TASK_ID=${line#*'"task_id":'}; TASKQUEUE_RUN_ID=${line#*'"run_id":'}; id=${line#*'"id":"'}; token=${line#*'"token":"'}; data=${line#*'"data":'}; \
TASKQUEUE_TASK_ID=${TASKQUEUE_TASK_ID%%,*} TASKQUEUE_RUN_ID=${TASKQUEUE_RUN_ID%%,*} id=${id%%'"'*} token=${token%%'"'*} data=${data%\}}; }; \
answer() { printf '{"type":"done","id":"%s","result":{"run":%s,"token":"%s","data":%s}}\n' "$id" "$TASKQUEUE_RUN_ID" "$token" "$data"; }; "#;

/// Classes: the name, and what the handler does between its two notes, or instead of them.
const CLASSES: [(&str, &str); 17] = [
    ("note", "note start; note end 0"),
    // Has a rate.
    ("paced", "note start; note end 0"),
    ("fail", "note start; note end 3; exit 3"),
    // Long enough that the lease thread saves its report.
    (
        "report",
        "note start; echo '{\"progress\":10,\"message\":\"a\"}' >&3; echo '{\"result\":{\"a\":1}}' >&3; echo '{\"event\":\"said\",\"data\":1}' >&3; sleep 0.3; note end 0",
    ),
    // A child does the work, which only a rescue ends if the runner is killed.
    ("family", "{ note start; sleep 0.3; note end 0; } & wait"),
    ("long", "note start; sleep 1.5; note end 0"),
    // Requests a retry, once.
    (
        "give-back",
        "note start; [ -e \"$EFFECTS.$TASKQUEUE_TASK_ID\" ] || { : >\"$EFFECTS.$TASKQUEUE_TASK_ID\"; note end 99; exit 99; }; note end 0",
    ),
    // The first attempt never ends on its own, and has no child that would outlive it.
    (
        "hang-once",
        "note start; [ $TASKQUEUE_ATTEMPT != 1 ] || while :; do read x <>\"$EFFECTS.never\"; done; note end 0",
    ),
    ("slow", "note start; sleep 0.5; note end 0"),
    // The first attempt takes longer than a short lease, unless time is short, and writes that it is alive.
    (
        "vigil",
        "note start; n=0; [ $TASKQUEUE_ATTEMPT = 1 ] || n=100; \
         while [ $n -lt 100 ] && ! [ -e \"$EFFECTS.hurry\" ]; do sleep 0.2; n=$((n + 1)); note alive; done; note end 0",
    ),
    // The first attempt takes a second.
    ("late", "note start; [ $TASKQUEUE_ATTEMPT != 1 ] || sleep 1; note end 0"),
    // Writes its input.
    (
        "brief",
        r#"note start; read -r data; printf '{"result":{"run":%s,"token":"%s","data":%s}}\n' "$TASKQUEUE_RUN_ID" "$TASKQUEUE_RUN_TOKEN" "$data" >&3; sleep 0.02; note end 0"#,
    ),
    // One run after the other.
    (
        "kept",
        r#"echo '{"type":"hello","version":1}'
        while read -r line; do
            case $line in
                *'"type":"run"'*) told; note start; note end 0; answer ;;
                *'"ping"'*) echo '{"type":"pong"}' ;;
                *'"drain"'*) exit 0 ;;
            esac
        done"#,
    ),
    // Several runs at once, which end in another order than they began. A cancelled run ends soon anyway.
    (
        "several",
        r#"echo '{"type":"hello","version":1,"capabilities":["cancel"],"max_in_flight":3}'
        while read -r line; do
            case $line in
                *'"type":"run"'*) told; { note start; sleep 0.00$((7 * TASKQUEUE_RUN_ID % 10)); note end 0; answer; } & ;;
                *'"ping"'*) echo '{"type":"pong"}' ;;
                *'"drain"'*) wait; exit 0 ;;
            esac
        done"#,
    ),
    // Has itself cancelled, and does not end on its own.
    (
        "unwanted",
        "note start; \"$PROGRAM\" --database \"$DATABASE\" cancel \"$TASKQUEUE_TASK_ID\" >/dev/null 2>&1; \
         while :; do read x <>\"$EFFECTS.never\"; done",
    ),
    // Queues a task that it may not queue, and cancels a task that is not its own.
    ("meddle", "note start; \"$PROGRAM\" queue note; \"$PROGRAM\" cancel 1; note end 0"),
    // `taskqueue report progress` and `result`, killed as a file specifies.
    (
        "tell",
        "note start; read fault <\"$FAULT_FILE\"; export TASKQUEUE_FAULT=\"$fault\" TASKQUEUE_FAULT_LOG=\"$FAULT_FILE.log\"; \
         \"$PROGRAM\" report progress 40; a=$?; \"$PROGRAM\" report result 1; echo \"$a $?\" >\"$FAULT_FILE.told\"; note end 0",
    ),
];

pub fn script(class: &str) -> String {
    let (_, body) = CLASSES.iter().find(|(name, _)| *name == class).unwrap();
    let talk = if COPROCESSES.contains(&class) { TALK } else { "" };
    format!("{NOTE}{talk}{body}")
}

/// Returns the configuration of a home.
pub fn configuration(home: &Path, program: &Path, url: &str) -> String {
    // As root, nothing would run on a server otherwise.
    let user = if rustix::process::geteuid().is_root() { "user = \"root\"\n" } else { "" };
    let mut toml = format!(
        "{user}[exec]\nenabled = true\n\
         [notify]\nlog = {:?}\nevery_secs = 0\n[hooks]\nretry = [\"/bin/true\"]\n",
        notices_path(home)
    );
    for (name, _) in CLASSES {
        let script = script(name);
        let protocol = if COPROCESSES.contains(&name) { "coprocess" } else { "one-shot" };
        toml.push_str(&format!(
            "[class.{name}]\nprotocol = \"{protocol}\"\nargv = [\"/bin/sh\", \"-c\", {}]\nkill_grace_secs = 1\nenv = {{ EFFECTS = {:?}, FAULT_FILE = {:?}, PROGRAM = {:?}, DATABASE = {:?} }}\n",
            serde_json::to_string(&script).unwrap(),
            effects_path(home),
            fault_file(home),
            program,
            url,
        ));
    }
    toml
}

/// Returns the arguments for `exec`, whose environment cannot be configured.
pub fn exec_arguments(home: &Path) -> [String; 3] {
    ["/bin/sh".to_owned(), "-c".to_owned(), format!("EFFECTS='{}'; {}", effects_path(home).display(), script("note"))]
}

pub fn effects_path(home: &Path) -> std::path::PathBuf {
    home.join("effects")
}

/// Returns the path of the file with the notices.
pub fn notices_path(home: &Path) -> std::path::PathBuf {
    home.join("notices")
}

/// Returns the path of the file that makes all handlers hurry while it exists.
pub fn hurry_path(home: &Path) -> std::path::PathBuf {
    home.join("effects.hurry")
}

/// Returns the path of a named pipe without a writer.
pub fn never_path(home: &Path) -> std::path::PathBuf {
    home.join("effects.never")
}

pub fn fault_file(home: &Path) -> std::path::PathBuf {
    home.join("handler-fault")
}

/// Reads the lines from this byte on.
pub fn read(home: &Path, from: u64) -> Vec<Effect> {
    let text = std::fs::read_to_string(effects_path(home)).unwrap_or_default();
    let text = text.get(usize::try_from(from).unwrap()..).unwrap_or_default();
    text.lines().map(parse).collect()
}

fn parse(line: &str) -> Effect {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number =
        |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("effect: {line}"));
    Effect {
        is_start: words[0] == "start",
        task_id: number(1),
        run_id: number(2),
        pid: number(3),
        uptime: words[4].to_owned(),
        exit_code: words.get(5).and_then(|code| code.parse().ok()),
    }
}
