//! The address where a worker serves metrics: an option, or a key of the configuration that is read again on a reload.

use std::sync::Arc;

use crate::error::CliError;
use crate::output::Out;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::Context;
use taskqueue_engine::work::{Monitor, Tally};

pub(crate) struct WorkMetrics {
    monitor: Monitor,
    /// Whether the option sets it; then the configuration does not matter.
    is_given: bool,
}

impl WorkMetrics {
    pub(crate) fn begin(
        ctx: &Context,
        tally: &Arc<Tally>,
        given: Option<ListenAddress>,
        configured: Option<ListenAddress>,
        out: &mut Out,
    ) -> Result<Self, CliError> {
        let mut metrics = Self { monitor: Monitor::new(ctx, tally), is_given: given.is_some() };
        if let Some(address) = given.or(configured) {
            metrics.monitor.listen(Some(&address)).map_err(|error| {
                CliError::failed(format!("cannot listen at {address} for metrics: {error}"))
                    .with_hint("if another worker uses this address, pass a different one, or --metrics 127.0.0.1:0 for any free port")
            })?;
            metrics.tell(out);
        }
        Ok(metrics)
    }

    /// Applies a reloaded configuration.
    pub(crate) fn change(&mut self, configured: Option<ListenAddress>, out: &mut Out) {
        if self.is_given {
            return;
        }
        let before = self.monitor.address().cloned();
        if let Err(error) = self.monitor.listen(configured.as_ref()) {
            let address = configured.map(|address| address.to_string()).unwrap_or_default();
            let now = match (self.monitor.address(), before) {
                (None, Some(before)) => format!("and another process now uses {before}, so the metrics are off"),
                _ => "nothing changes".to_owned(),
            };
            out.warn(&format!("cannot listen at {address} for metrics, {now}: {error}"));
        } else if self.monitor.address() != before.as_ref() {
            self.tell(out);
        }
    }

    fn tell(&self, out: &mut Out) {
        let Some(address) = self.monitor.address() else { return };
        out.say_verbose(&format!("metrics at {address}"));
        if address.is_open() {
            out.warn(&format!(
                "anyone who can reach {address} can read the metrics without a password; 127.0.0.1 allows only this host"
            ));
        }
    }
}
