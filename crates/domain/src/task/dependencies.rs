//! The prerequisites of a new task: existing tasks, or other tasks of the same batch, referred to by name.

use std::collections::HashMap;

use serde::Serialize;

use super::ids::TaskId;
use super::name::check_name;
use crate::run::status::{Stored, TaskStatus};

/// A task that must succeed, or finish in any way, before another one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prerequisite {
    /// A task in the store.
    Task(TaskId),
    /// A task queued in the same batch: its index, from 0.
    InBatch(usize),
}

/// One side of a dependency, as shown for the other side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkedTask {
    /// The task.
    pub id: TaskId,
    /// Its class; `None` if the task was deleted.
    pub class: Option<String>,
    /// Its status; `None` if the task was deleted.
    pub status: Option<Stored<TaskStatus>>,
    /// Whether it is finished and will not run again unless retried.
    pub is_settled: bool,
    /// Whether the dependency is satisfied: its prerequisite has succeeded or, without `needs_success`, is finished.
    pub is_satisfied: bool,
    /// Whether only a success satisfies the dependency.
    pub needs_success: bool,
}

/// The name of a line of a batch, which is the name of its task, and the names of its prerequisites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineNames {
    /// Its own name.
    pub name: Option<String>,
    /// The names of its prerequisites, of earlier or later lines.
    pub after: Vec<String>,
    /// The names of those for which any end is enough.
    pub after_any: Vec<String>,
}

/// The indexes of the prerequisites of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinePlaces {
    /// Those that must succeed.
    pub after: Vec<usize>,
    /// Those for which any end is enough.
    pub after_any: Vec<usize>,
}

/// Returns for each line the indexes of its prerequisites.
///
/// # Errors
/// The index of a line and what is wrong with it. Its name is invalid, a prerequisite does not exist or is not the only line of
/// its name, or the line is part of a cycle, which the text lists.
pub fn resolve_names(lines: &[LineNames]) -> Result<Vec<LinePlaces>, (usize, String)> {
    // Several lines may have a name, as several tasks may; then no line can wait for "the" task of this name.
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, line) in lines.iter().enumerate() {
        let Some(name) = &line.name else { continue };
        check_name(name).map_err(|problem| (place, problem))?;
        places.entry(name.as_str()).or_default().push(place);
    }
    let mut after = Vec::with_capacity(lines.len());
    for (place, line) in lines.iter().enumerate() {
        let find = |name: &String| match places.get(name.as_str()).map(Vec::as_slice) {
            Some(&[only]) => Ok(only),
            Some(_) => Err((place, format!("several lines have the name \"{name}\""))),
            None => Err((place, format!("no line has the name \"{name}\"; an id is written as a number"))),
        };
        after.push(LinePlaces {
            after: line.after.iter().map(find).collect::<Result<_, _>>()?,
            after_any: line.after_any.iter().map(find).collect::<Result<_, _>>()?,
        });
    }
    let all: Vec<Vec<usize>> = after.iter().map(|line| [&line.after[..], &line.after_any[..]].concat()).collect();
    match find_circle(&all) {
        Some(circle) => Err((circle[0], circle_words(&circle, lines))),
        None => Ok(after),
    }
}

fn circle_words(circle: &[usize], lines: &[LineNames]) -> String {
    let names: Vec<String> =
        circle.iter().filter_map(|place| lines.get(*place)?.name.as_ref()).map(|name| format!("\"{name}\"")).collect();
    format!("these tasks would wait for each other forever: {}", names.join(" after "))
}

/// Returns the indexes of a cycle: each waits for the next one, and the first one is repeated at the end.
#[must_use]
pub fn find_circle(after: &[Vec<usize>]) -> Option<Vec<usize>> {
    let left = without_those_that_can_run(after);
    let mut path = vec![*left.iter().min()?];
    // Every remaining task waits for another remaining task, so following them must reach one of them again.
    let mut step_of: HashMap<usize, usize> = HashMap::from([(path[0], 0)]);
    loop {
        let next = *after.get(*path.last()?)?.iter().find(|place| left.contains(place))?;
        path.push(next);
        if let Some(first) = step_of.insert(next, path.len() - 1) {
            return Some(path.split_off(first));
        }
    }
}

/// Formats a cycle of stored tasks, each waiting for the next one, with the first one repeated at the end: `1 after 2 after 1`.
#[must_use]
pub fn id_circle_words(circle: &[TaskId]) -> String {
    circle.iter().map(TaskId::to_string).collect::<Vec<_>>().join(" after ")
}

/// Removes tasks without prerequisites, then tasks that waited only for removed ones, and so on. Not recursive: a chain may be as
/// long as a batch.
fn without_those_that_can_run(after: &[Vec<usize>]) -> std::collections::HashSet<usize> {
    let mut open: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut dependants = vec![Vec::new(); after.len()];
    for (place, prerequisites) in after.iter().enumerate() {
        for prerequisite in prerequisites {
            dependants[*prerequisite].push(place);
        }
    }
    let mut can_run: Vec<usize> = (0..open.len()).filter(|place| open[*place] == 0).collect();
    while let Some(done) = can_run.pop() {
        for dependant in &dependants[done] {
            open[*dependant] -= 1;
            if open[*dependant] == 0 {
                can_run.push(*dependant);
            }
        }
    }
    (0..open.len()).filter(|place| open[*place] > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, after: &[&str]) -> LineNames {
        let name = (!name.is_empty()).then(|| name.to_owned());
        LineNames { name, after: after.iter().map(|&name| name.to_owned()).collect(), after_any: Vec::new() }
    }

    fn after(lines: &[LineNames]) -> Vec<Vec<usize>> {
        resolve_names(lines).unwrap().into_iter().map(|line| line.after).collect()
    }

    #[test]
    fn names_of_earlier_and_of_later_lines_are_found() {
        let lines = [line("a", &["b"]), line("b", &[]), line("", &["a", "b"])];
        assert_eq!(after(&lines), [vec![1], vec![], vec![0, 1]]);
        let any = [LineNames { after_any: vec!["b".to_owned()], ..line("a", &["b"]) }, line("b", &[])];
        assert_eq!(resolve_names(&any).unwrap()[0], LinePlaces { after: vec![1], after_any: vec![1] });
    }

    #[test]
    fn a_prerequisite_that_no_line_or_that_two_lines_are_is_refused() {
        assert_eq!(resolve_names(&[line("a", &[]), line("", &["c"])]).unwrap_err().0, 1);
        assert!(resolve_names(&[line("a", &[]), line("a", &[])]).is_ok());
        let (place, problem) = resolve_names(&[line("a", &[]), line("a", &[]), line("", &["a"])]).unwrap_err();
        assert_eq!((place, problem.as_str()), (2, "several lines have the name \"a\""));
        for bad in ["\n", &"x".repeat(191)] {
            assert!(resolve_names(&[line(bad, &[])]).is_err(), "{bad:?}");
        }
        let empty = LineNames { name: Some(String::new()), ..LineNames::default() };
        assert!(resolve_names(&[empty]).is_err());
    }

    #[test]
    fn a_circle_is_refused_with_all_that_stand_in_it_and_nobody_else() {
        let lines = [line("d", &["a"]), line("a", &["b"]), line("b", &["e", "c"]), line("c", &["a"]), line("e", &[])];
        let (_, problem) = resolve_names(&lines).unwrap_err();
        assert!(problem.ends_with(": \"a\" after \"b\" after \"c\" after \"a\""), "{problem}");
        let any = [LineNames { after_any: vec!["b".to_owned()], ..line("a", &[]) }, line("b", &["a"])];
        assert_eq!(resolve_names(&any).unwrap_err().0, 0);
        let (place, problem) = resolve_names(&[line("x", &[]), line("y", &["y"])]).unwrap_err();
        assert!(place == 1 && problem.ends_with(": \"y\" after \"y\""), "{problem}");
    }

    #[test]
    fn a_long_chain_and_a_wide_diamond_are_no_circle() {
        let count = 100_000;
        let chain: Vec<LineNames> = (0..count)
            .map(|number| line(&number.to_string(), if number == 0 { &[] } else { &["0"] }))
            .chain([LineNames {
                after: (0..count).map(|number: i32| number.to_string()).collect(),
                ..LineNames::default()
            }])
            .collect();
        assert_eq!(after(&chain).last().unwrap().len(), 100_000);
        let chain: Vec<LineNames> = (0..count)
            .map(|number| LineNames {
                name: Some(number.to_string()),
                after: if number + 1 < count { vec![(number + 1).to_string()] } else { Vec::new() },
                after_any: Vec::new(),
            })
            .collect();
        assert!(resolve_names(&chain).is_ok());
    }

    #[test]
    fn a_name_twice_in_one_list_is_no_circle() {
        assert_eq!(after(&[line("a", &[]), line("", &["a", "a"])]), [vec![], vec![0, 0]]);
    }
}
