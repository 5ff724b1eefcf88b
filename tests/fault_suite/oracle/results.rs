//! The recorded results of a run, compared with the input of its handler (I21).

use serde_json::Value;

use crate::records::Records;

/// I21: a handler that writes which run it received is recorded for that run, with its id, its token and the data of its task.
/// A coprocess writes that for every run.
pub fn results_are_those_of_their_own_run(records: &Records, found: &mut Vec<String>) {
    for run in &records.runs {
        let results = serde_json::from_str::<Value>(&run.results).unwrap_or_default();
        let Some(told) = results.get("run") else {
            let is_told = run.status == "success" && run.claimant.is_empty() && records.is_of_coprocess(run);
            if is_told && !records.may_fail {
                found.push(format!("I21: run {} has not the results that its coprocess gave", run.id));
            }
            continue;
        };
        let data = records.task(run.task_id).and_then(|task| serde_json::from_str::<Value>(&task.data).ok());
        let has_own_data = run.status != "success" || data.is_some_and(|data| results["data"] == data);
        if *told != run.id || results["token"] != run.token || !has_own_data {
            found.push(format!("I21: run {} of task {} has the results of another: {results}", run.id, run.task_id));
        }
    }
}
