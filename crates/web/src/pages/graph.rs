//! What a task waits for and what waits for it, as a drawing with arrows from left to right. The lists below it say the same.

use maud::{Markup, html};

use crate::pages::parts::{status_class, text};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;

/// The size of a box, and the distances between boxes, in the units of the drawing.
const BOX: (usize, usize) = (180, 44);
const BETWEEN: (usize, usize) = (90, 10);
/// The width of three columns.
const WIDTH: usize = 3 * BOX.0 + 2 * BETWEEN.0;
/// The most boxes in a column; the lists have the others.
const MOST: usize = 8;
/// The most characters of a class in a box.
const CLASS_CHARS: usize = 22;

/// Nothing if the task waits for none and none waits for it.
pub(super) fn graph(task: &Task, prerequisites: &[LinkedTask], dependants: &[LinkedTask]) -> Markup {
    let rows = prerequisites.len().max(dependants.len()).min(MOST);
    if rows == 0 {
        return html! {};
    }
    let height = rows * (BOX.1 + BETWEEN.1);
    let middle = (height - BETWEEN.1) / 2;
    let (center, right) = (BOX.0 + BETWEEN.0, 2 * (BOX.0 + BETWEEN.0));
    let own = Node { id: task.id, class: &task.class.to_string(), status: Some(&task.status), is_own: true };
    let before = || prerequisites.iter().take(MOST).enumerate();
    let after = || dependants.iter().take(MOST).enumerate();
    html! {
        // The strokes of the boxes are half outside of them.
        svg.graph viewBox=(format!("-1 -1 {} {}", WIDTH + 2, height + 2)) role="group" aria-label="What it waits for, and what waits for it" {
            defs {
                marker #arrow viewBox="0 0 10 10" refX="10" refY="5" markerWidth="7" markerHeight="7" orient="auto" {
                    path d="M 0 0 L 10 5 L 0 10 z" {}
                }
            }
            @for (row, linked) in before() { (edge((BOX.0, middle_of(row)), (center, middle), linked.needs_success)) }
            @for (row, linked) in after() { (edge((center + BOX.0, middle), (right, middle_of(row)), linked.needs_success)) }
            @for (row, linked) in before() { (node(&Node::of(linked), (0, top_of(row)))) }
            (node(&own, (center, middle - BOX.1 / 2)))
            @for (row, linked) in after() { (node(&Node::of(linked), (right, top_of(row)))) }
        }
        @for (side, title) in [(prerequisites, "prerequisites"), (dependants, "dependants")] {
            @if side.len() > MOST { p.quiet.drawn { "The first " (MOST) " of " (side.len()) " " (title) " are drawn." } }
        }
        @if prerequisites.iter().chain(dependants).any(|linked| !linked.needs_success) {
            p.quiet.drawn { "A dashed arrow: any outcome of the first task is enough." }
        }
    }
}

const fn top_of(row: usize) -> usize {
    row * (BOX.1 + BETWEEN.1)
}

const fn middle_of(row: usize) -> usize {
    top_of(row) + BOX.1 / 2
}

/// An arrow; dashed if any end of the first task is enough.
fn edge(from: (usize, usize), to: (usize, usize), needs_success: bool) -> Markup {
    let bend = (from.0 + to.0) / 2;
    let path = format!("M {} {} C {bend} {} {bend} {} {} {}", from.0, from.1, from.1, to.1, to.0, to.1);
    html! { path.edge.any[!needs_success] d=(path) marker-end="url(#arrow)" {} }
}

/// What a box says.
struct Node<'a> {
    id: TaskId,
    class: &'a str,
    /// `None` if the task was deleted.
    status: Option<&'a Stored<TaskStatus>>,
    is_own: bool,
}

impl<'a> Node<'a> {
    fn of(linked: &'a LinkedTask) -> Self {
        let class = linked.class.as_deref().unwrap_or_default();
        Self { id: linked.id, class, status: linked.status.as_ref(), is_own: false }
    }
}

fn node(node: &Node<'_>, (x, y): (usize, usize)) -> Markup {
    let class = match node.class.char_indices().nth(CLASS_CHARS) {
        Some((end, _)) => format!("{}…", &node.class[..end]),
        None => node.class.to_owned(),
    };
    let words = html! {
        rect.own[node.is_own] x=(x) y=(y) width=(BOX.0) height=(BOX.1) rx="6" {}
        text x=(x + 10) y=(y + 18) {
            (node.id) " "
            @match node.status {
                Some(status) => tspan class=(status_class(status)) { (text(status)) },
                None => "deleted",
            }
        }
        text x=(x + 10) y=(y + 36) { (text(class)) }
    };
    html! { @if node.is_own { (words) } @else { a href=(format!("/tasks/{}", node.id)) { (words) } } }
}
