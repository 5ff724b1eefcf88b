//! Services of the machine: clocks, files, locks, sockets, random numbers. Starts no process and does not depend on tasks.

#[macro_use]
mod fault_point;
pub mod files;
pub mod machine;
pub mod net;

pub mod clock;
#[cfg(feature = "fault-points")]
pub mod fault;
pub mod random;
pub mod recent;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
