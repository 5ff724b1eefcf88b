//! The time line of a task: a row for each segment, with a bar at its position in the whole. The words say the same.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::pages::parts::{cards, text, time};
use taskqueue_domain::monitoring::time_line::{Segment, Stretch};
use taskqueue_engine::inspect::status::TaskDetail;
use taskqueue_views::human::distance;
use taskqueue_views::time_line::{Scale, shown, words};

/// The size of a bar, in pixels.
const WIDTH: usize = 240;
const HEIGHT: usize = 12;

/// Nothing if no segment has a duration.
pub(super) fn time_line(detail: &TaskDetail, now: DateTime<Utc>) -> Markup {
    let (segments, left_out) = shown(detail);
    let Some(scale) = Scale::of(segments, WIDTH) else { return html! {} };
    let rows = html! {
        @for segment in segments {
            tr {
                td { (bar(segment, scale.columns(segment))) }
                td { (text(words(segment, detail, now))) }
                td data-label="took" { (distance(segment.to - segment.from)) }
                td data-label="began" { (time(segment.from, now)) }
            }
        }
    };
    html! {
        @if left_out > 0 { p.quiet { (left_out) " earlier parts are not shown." } }
        (cards(["Time line", "What", "Took", "Began"], &rows))
    }
}

/// A bar whose height shows what it is without a colour: an attempt is full, a wait a frame, and no run a line.
fn bar(segment: &Segment, (from, to): (usize, usize)) -> Markup {
    let (class, top) = match segment.what {
        Stretch::WithoutRun => ("none", HEIGHT / 2),
        Stretch::Waited => ("waits", 2),
        Stretch::Attempt { .. } => ("attempt", 0),
    };
    html! {
        svg.time viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width=(WIDTH) height=(HEIGHT) aria-hidden="true" {
            rect class=(class) x=(from) y=(top) width=(to - from) height=(HEIGHT.saturating_sub(2 * top).max(1)) {}
        }
    }
}
