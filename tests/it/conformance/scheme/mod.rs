//! The PHP scheme (source 001), point by point. `scheme_2_4_1_2_…` is part 2, point 4, sub-point 1.2 in the numbering of the
//! source; bullets have no number and share that of their point.
//! If the source shows two versions of a point, the added lines count.

mod part1_tables;
mod part2_adding;
mod part3_running;
