//! The charts of the page Now: how many attempts started in each span, as a line, and how many tasks finished, as bars, stacked by how
//! they ended. Drawn by the server, with attributes and classes alone, because the policy of the page allows no inline style. Readable
//! without colours: failed tasks are striped, cancelled and expired ones are hollow.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::following::charts::{DAY, Figures, HOUR, Point, Shape};
use crate::pages::parts::answer;
use taskqueue_engine::inspect::ends::Ends;

/// The size of a drawing, in its own units; the browser scales it to the width of the page.
const WIDTH: usize = 480;
const HEIGHT: usize = 158;
/// The height of the highest bar, and where it stands.
const BAR_HEIGHT: i64 = 120;
const BOTTOM: i64 = 138;
/// The least height of a part, so that a single failed task among thousands is seen. Also the height of a stripe.
const LEAST_HEIGHT: i64 = 3;
/// The width and the height of a sample in the legend.
const SAMPLE: i64 = 12;

/// Both charts.
pub(super) fn charts(figures: &Figures) -> Markup {
    let Some((now, read_at)) = figures.read_at else {
        let words = figures.problem.as_ref().map_or("Not read yet.", |problem| &problem.detail);
        return html! { h2 { "Started and finished" } p.quiet { (words) } };
    };
    html! {
        h2 { "Started and finished" }
        @if let Some(problem) = &figures.problem {
            (answer(&format!("{}. The charts are {}s old.", problem.detail, read_at.elapsed().as_secs()), None, true))
        }
        div.charts {
            (chart("hour", "Per minute in the last hour", HOUR, figures, now))
            (chart("day", "Per 15 minutes in the last 24 hours", DAY, figures, now))
        }
    }
}

fn chart(name: &str, title: &str, shape: Shape, figures: &Figures, now: DateTime<Utc>) -> Markup {
    let points = figures.points(shape, now);
    let read: Vec<Ends> = points.iter().filter_map(|point| point.ends).collect();
    let total = read.iter().copied().sum();
    html! {
        figure {
            figcaption { (title) }
            (drawing(name, title, &points, total))
            ul.legend {
                @if let Some(starts) = all_starts(&points) { li { (sample_of_starts()) " started " b { (starts) } } }
                @for (class, words, count) in parts(total) { li { (sample(name, class)) " " (words) " " b { (count) } } }
            }
            @if read.len() < points.len() {
                p.quiet { (read.len()) " of " (points.len()) " intervals were read so far." }
            }
            details id=(format!("{name}-figures")) {
                summary { "Figures" }
                (table(&points))
            }
        }
    }
}

/// Returns how many attempts started in all spans, if that was read.
fn all_starts(points: &[Point]) -> Option<i64> {
    points.iter().map(|point| point.starts).sum()
}

/// The parts of a bar from the bottom to the top: the class of the style sheet, its name, and the figure.
fn parts(ends: Ends) -> [(&'static str, &'static str, i64); 3] {
    [
        ("failed", "failed, not retried", ends.failed),
        ("others", "cancelled or expired", ends.others),
        ("success", "success", ends.success),
    ]
}

fn drawing(name: &str, title: &str, points: &[Point], total: Ends) -> Markup {
    let most = points.iter().flat_map(|point| [point.ends.map(Ends::all), point.starts]).flatten().max().unwrap_or(0);
    let times: Vec<String> = points.iter().map(|point| point.from.format("%H:%M").to_string()).collect();
    let time = |place: usize| times.get(place).map_or("", String::as_str);
    let started = all_starts(points).map(|starts| format!("started {starts}"));
    let words = parts(total).map(|(_, words, count)| format!("{words} {count}"));
    let words: Vec<String> = started.into_iter().chain(words).collect();
    let step = WIDTH / points.len().max(1);
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-labelledby=(format!("{name}-title {name}-words")) {
            title id=(format!("{name}-title")) { "Started and finished. " (title) }
            desc id=(format!("{name}-words")) { "From " (time(0)) " UTC: " (words.join(", ")) ". At most " (most) " in one interval." }
            defs {
                pattern id=(format!("{name}-stripes")) width=(LEAST_HEIGHT) height=(LEAST_HEIGHT) patternUnits="userSpaceOnUse" {
                    rect.failed width=(LEAST_HEIGHT) height=(LEAST_HEIGHT - 1) {}
                }
            }
            @for (place, point) in points.iter().enumerate() { (bar(name, place * step, step, point.ends, most)) }
            polyline.starts points=(line_of_starts(points, step, most)) {}
            line.axis x1="0" x2=(WIDTH) y1=(BOTTOM) y2=(BOTTOM) {}
            text x="0" y="12" { (most) }
            text x="0" y=(HEIGHT - 4) { (time(0)) }
            text x=(WIDTH / 2) y=(HEIGHT - 4) text-anchor="middle" { (time(points.len() / 2)) }
            text x=(WIDTH) y=(HEIGHT - 4) text-anchor="end" { (time(points.len().saturating_sub(1))) " UTC" }
        }
    }
}

/// The bar of a span; a grey field if it was not read yet.
fn bar(name: &str, x: usize, step: usize, ends: Option<Ends>, most: i64) -> Markup {
    let width = step.saturating_sub(1);
    html! {
        @match ends {
            None => rect.unread x=(x) width=(width) y=(BOTTOM - BAR_HEIGHT) height=(BAR_HEIGHT) {},
            Some(ends) => @for (class, y, height) in stacked(ends, most) { (part(name, class, (x, y), (width, height))) },
        }
    }
}

/// Returns the places of the line of starts: one in the middle of each bar. Empty until the starts were read.
fn line_of_starts(points: &[Point], step: usize, most: i64) -> String {
    let place = |(place, point): (usize, &Point)| {
        let height = point.starts?.saturating_mul(BAR_HEIGHT) / most.max(1);
        Some(format!("{},{}", place * step + step / 2, BOTTOM - height))
    };
    points.iter().enumerate().filter_map(place).collect::<Vec<_>>().join(" ")
}

/// Returns the parts of a bar with their tops and heights.
fn stacked(ends: Ends, most: i64) -> Vec<(&'static str, i64, i64)> {
    let mut y = BOTTOM;
    let mut place = |count| {
        let height = height_of(count, most);
        y -= height;
        (y, height)
    };
    let some = parts(ends).into_iter().filter(|(_, _, count)| *count > 0);
    some.map(|(class, _, count)| (class, place(count))).map(|(class, (y, height))| (class, y, height)).collect()
}

fn height_of(count: i64, most: i64) -> i64 {
    (count.saturating_mul(BAR_HEIGHT) / most.max(1)).max(LEAST_HEIGHT)
}

fn part(name: &str, class: &str, (x, y): (usize, i64), (width, height): (usize, i64)) -> Markup {
    // An attribute is weaker than the style sheet: only this part has no class.
    html! {
        @if class == "failed" {
            rect x=(x) y=(y) width=(width) height=(height) fill=(format!("url(#{name}-stripes)")) {}
        } @else {
            rect class=(class) x=(x) y=(y) width=(width) height=(height) {}
        }
    }
}

fn sample(name: &str, class: &str) -> Markup {
    html! { svg width=(SAMPLE) height=(SAMPLE) aria-hidden="true" { (part(name, class, (0, 0), (SAMPLE as usize, SAMPLE))) } }
}

fn sample_of_starts() -> Markup {
    let middle = SAMPLE / 2;
    html! {
        svg width=(SAMPLE) height=(SAMPLE) aria-hidden="true" { polyline.starts points=(format!("0,{middle} {SAMPLE},{middle}")) {} }
    }
}

/// Returns the figures of a chart as a table.
fn table(points: &[Point]) -> Markup {
    let is_busy = |point: &&Point| point.starts.unwrap_or(0) > 0 || point.ends.is_some_and(|ends| ends.all() > 0);
    html! {
        table {
            thead { tr { th { "From (UTC)" } th { "started" } @for (_, words, _) in parts(Ends::default()) { th { (words) } } } }
            tbody {
                @for point in points.iter().rev().filter(is_busy) {
                    tr {
                        td { (point.from.format("%F %H:%M")) }
                        td { @if let Some(starts) = point.starts { (starts) } }
                        @for (_, _, count) in parts(point.ends.unwrap_or_default()) { td { (count) } }
                    }
                }
            }
        }
        p.quiet { "Intervals in which nothing started or finished are left out." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_task_among_many_is_seen_and_none_is_higher_than_the_drawing() {
        assert_eq!(
            [height_of(1, 1_000_000), height_of(1_000_000, 1_000_000), height_of(500, 1_000)],
            [LEAST_HEIGHT, BAR_HEIGHT, 60]
        );
        let ends = Ends { success: 1_000_000, failed: 1, others: 1 };
        let drawn = bar("hour", 0, 8, Some(ends), ends.all()).into_string();
        assert_eq!(drawn.matches("<rect").count(), 3, "{drawn}");
        assert!(drawn.contains("fill=\"url(#hour-stripes)\"") && !drawn.contains("y=\"-"), "{drawn}");
    }

    #[test]
    fn a_span_without_figures_is_not_shown_as_one_without_tasks() {
        assert!(bar("hour", 0, 8, None, 5).into_string().contains("unread"));
        assert_eq!(bar("hour", 0, 8, Some(Ends::default()), 5).into_string(), "");
    }

    #[test]
    fn the_line_of_starts_is_drawn_once_they_were_read() {
        let point = |starts| Point { from: DateTime::UNIX_EPOCH, starts, ends: None };
        assert_eq!(line_of_starts(&[point(None), point(None)], 8, 5), "");
        assert_eq!(all_starts(&[point(None), point(Some(1))]), None);
        assert_eq!(line_of_starts(&[point(Some(0)), point(Some(6))], 8, 6), "4,138 12,18");
    }
}
