//! A step of the program at which the fault suite may break it. Nothing at all without the feature `fault-points`.

/// Names a step: `fault_point!("claim.before_commit")`. Each name stands in one place.
#[cfg(feature = "fault-points")]
#[macro_export]
macro_rules! fault_point {
    ($label:literal) => {
        $crate::fault::reach($label);
    };
}

/// Names a step, at which nothing happens.
#[cfg(not(feature = "fault-points"))]
#[macro_export]
macro_rules! fault_point {
    ($label:literal) => {};
}
