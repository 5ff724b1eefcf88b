//! A step of the program at which the fault suite may break it. Nothing at all without the feature `fault-points`.

/// Names a step: `fault_point!("claim.before_commit")`. Each name stands in one place.
macro_rules! fault_point {
    ($label:literal) => {
        #[cfg(feature = "fault-points")]
        $crate::os::fault::reach($label);
    };
}
