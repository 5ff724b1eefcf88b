//! The PHP scheme (source 001), point by point. `scheme_2_4_1_2_…` is part 2, point 4, sub-point 1.2 as the source
//! numbers them; bullets have no number of their own and share their point's.
//! Where the source shows two versions of a point, the added lines count.

mod part1_tables;
mod part2_adding;
mod part3_running;
