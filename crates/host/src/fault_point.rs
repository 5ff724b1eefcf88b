//! Fault points: steps at which the fault suite may break the program. They compile to nothing without the feature
//! `fault-points`.

/// Names a step: `fault_point!("claim.before_commit")`. Each name is used in one place.
#[cfg(feature = "fault-points")]
#[macro_export]
macro_rules! fault_point {
    ($label:literal) => {
        $crate::fault::reach($label);
    };
}

/// Names a step; does nothing.
#[cfg(not(feature = "fault-points"))]
#[macro_export]
macro_rules! fault_point {
    ($label:literal) => {};
}
