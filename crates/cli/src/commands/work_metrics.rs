//! Where a worker answers to whoever watches it: an option, or a key of the configuration that is read again with it.

use std::sync::Arc;

use crate::error::CliError;
use crate::output::Out;
use taskqueue_domain::listen_address::ListenAddress;
use taskqueue_engine::Context;
use taskqueue_engine::work::{Monitor, Tally};

pub(super) struct WorkMetrics {
    monitor: Monitor,
    /// What the option says counts, whatever becomes of the configuration.
    is_given: bool,
}

impl WorkMetrics {
    pub(super) fn begin(
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
                    .with_hint("does another worker listen there? each needs an address of its own, or --metrics 127.0.0.1:0 for any port")
            })?;
            metrics.tell(out);
        }
        Ok(metrics)
    }

    /// The configuration was read again.
    pub(super) fn change(&mut self, configured: Option<ListenAddress>, out: &mut Out) {
        if self.is_given {
            return;
        }
        let before = self.monitor.address().cloned();
        if let Err(error) = self.monitor.listen(configured.as_ref()) {
            let address = configured.map(|address| address.to_string()).unwrap_or_default();
            let now = match (self.monitor.address(), before) {
                (None, Some(before)) => format!("and {before} is somebody else's by now, so it listens nowhere"),
                _ => "it goes on as before".to_owned(),
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
                "whoever reaches {address} can read the metrics, which ask for no password; 127.0.0.1 is for this host alone"
            ));
        }
    }
}
