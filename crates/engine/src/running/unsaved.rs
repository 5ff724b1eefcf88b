//! Updates of a running handler that are not in the database yet. Newer values replace older ones, so that after an hour
//! without the database only one row must be written.

use taskqueue_domain::run::message::Messages;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::records::RunOutput;
use taskqueue_store::{RunRef, RunReport, Store, StoreResult};

/// Updates of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsaved {
    /// PID and identity of the handler's process.
    pub handler: Option<(i64, String)>,
    /// 0 to 100.
    pub percents_completed: Option<i32>,
    /// A line of text to display.
    pub message: Option<String>,
    /// JSON text.
    pub results: Option<String>,
    /// Added to the metadata of the task when the run ends; not saved before.
    pub meta: Option<Meta>,
    /// The output so far, once for each stream.
    pub outputs: Vec<RunOutput>,
    /// Messages that are not stored yet.
    pub messages: Messages,
}

impl Unsaved {
    /// Returns true if there is nothing to save.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Merges a later update.
    pub(crate) fn add(&mut self, newer: Self) {
        self.handler = newer.handler.or(self.handler.take());
        self.percents_completed = newer.percents_completed.or(self.percents_completed);
        self.message = newer.message.or(self.message.take());
        self.results = newer.results.or(self.results.take());
        if let Some(meta) = newer.meta {
            self.add_meta(meta);
        }
        for output in newer.outputs {
            self.add_output(output);
        }
        self.messages.append(newer.messages);
    }

    /// Merges metadata that is written when the run ends, by name.
    pub(crate) fn add_meta(&mut self, later: Meta) {
        self.meta.get_or_insert_default().merge(later);
    }

    /// Takes what can be saved before the run ends, if there is anything; the metadata stays.
    pub(crate) fn take_update(&mut self) -> Option<Self> {
        let meta = self.meta.take();
        let update = std::mem::replace(self, Self { meta, ..Self::default() });
        (!update.is_empty()).then_some(update)
    }

    /// Replaces the earlier output of this stream.
    pub(crate) fn add_output(&mut self, output: RunOutput) {
        self.outputs.retain(|older| older.stream != output.stream);
        self.outputs.push(output);
    }

    /// Writes the update. Returns whether this process still has the run.
    ///
    /// # Errors
    /// Returns an error if the database could not be written; the caller may retry.
    pub(crate) fn save(&self, store: &mut Store, run: &RunRef) -> StoreResult<bool> {
        let is_ours = match &self.handler {
            Some((pid, identity)) => store.record_handler(run, *pid, identity)?,
            None => true,
        };
        let report = RunReport {
            percents_completed: self.percents_completed,
            message: self.message.as_deref(),
            results: self.results.as_deref(),
        };
        if !is_ours || (report != RunReport::default() && !store.record_report(run, &report)?) {
            return Ok(false);
        }
        if !self.outputs.is_empty() && !store.record_outputs(run, &self.outputs)? {
            return Ok(false);
        }
        // Messages come last, because after an error everything is written again, and they would be duplicated.
        if self.messages.is_empty() { Ok(true) } else { store.record_messages(run, &self.messages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_news_replace_older_ones_and_keep_the_rest() {
        let mut unsaved = Unsaved { percents_completed: Some(10), message: Some("a".to_owned()), ..Unsaved::default() };
        unsaved.add(Unsaved { percents_completed: Some(20), results: Some("1".to_owned()), ..Unsaved::default() });
        assert_eq!((unsaved.percents_completed, unsaved.message.as_deref()), (Some(20), Some("a")));
        assert_eq!(unsaved.results.as_deref(), Some("1"));
        assert!(!unsaved.is_empty() && Unsaved::default().is_empty());
    }

    #[test]
    fn metadata_waits_for_the_end_of_the_run() {
        let meta = |word: &str| Meta::from_words(&[word]).unwrap();
        let mut unsaved = Unsaved { meta: Some(meta("a=1")), ..Unsaved::default() };
        assert_eq!(unsaved.take_update(), None);
        unsaved.add(Unsaved { percents_completed: Some(20), meta: Some(meta("b=2")), ..Unsaved::default() });
        assert_eq!(unsaved.take_update(), Some(Unsaved { percents_completed: Some(20), ..Unsaved::default() }));
        assert_eq!(unsaved.meta.unwrap().to_string(), r#"{"a":"1","b":"2"}"#);
    }

    #[test]
    fn of_each_stream_only_the_newest_output_waits() {
        let output = |stream: &str, content: &str| RunOutput {
            stream: stream.to_owned(),
            content: content.to_owned(),
            total_bytes: 1,
            is_lossy: false,
        };
        let of = |outputs: Vec<RunOutput>| Unsaved { outputs, ..Unsaved::default() };
        let mut unsaved = of(vec![output("stdout", "a"), output("stderr", "b")]);
        unsaved.add(of(vec![output("stdout", "abc")]));
        assert_eq!(unsaved.outputs, [output("stderr", "b"), output("stdout", "abc")]);
    }
}
