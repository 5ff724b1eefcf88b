//! What a handler may do in its own queue: the permissions of a command that runs inside a run.

use super::choosing::selection::{ClassFilter, Selection};
use super::ids::TaskId;
use super::new_task::NewTask;
use super::task_class::TaskClass;
use super::unique::OnConflict;

/// The task whose handler issued a command. The command may queue tasks of some classes, which become children of this task. It
/// may read and change this task and its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The task.
    pub id: TaskId,
    /// Its class; its handler may queue tasks of this class.
    pub class: TaskClass,
    /// Names and patterns of further classes whose tasks it may queue.
    pub may_queue: Vec<ClassFilter>,
}

impl Parent {
    /// Returns an error unless its handler may queue tasks of this class.
    ///
    /// # Errors
    /// What is not allowed, as a sentence without a full stop.
    fn check_class(&self, class: &TaskClass) -> Result<(), String> {
        if *class == self.class || self.may_queue.iter().any(|filter| filter.matches(class.as_str())) {
            return Ok(());
        }
        let (own, asked) = (self.class.as_str(), class.as_str());
        Err(format!(
            "a handler of class {own} may not queue tasks of class {asked}: may_queue of [class.\"{own}\"] does not allow it"
        ))
    }

    /// Returns an error unless its handler may queue this task: the class must be allowed, and it must not replace another task.
    ///
    /// # Errors
    /// What is not allowed, as a sentence without a full stop.
    pub fn check_task(&self, task: &NewTask) -> Result<(), String> {
        self.check_class(&task.class)?;
        match &task.unique {
            Some(unique) if unique.on_conflict == OnConflict::Replace => {
                Err("a handler may not replace a task, because the task may not be its child".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the selection can contain only children of this task.
    #[must_use]
    pub fn selects_children(&self, selection: &Selection) -> bool {
        !selection.has_ids() && selection.parents == [self.id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent() -> Parent {
        let class = |text: &str| text.parse::<TaskClass>().unwrap();
        Parent { id: TaskId(7), class: class("shop.order"), may_queue: vec![ClassFilter::new("mail.*")] }
    }

    #[test]
    fn a_handler_may_queue_its_own_class_and_what_its_class_lists() {
        let check = |class: &str| parent().check_class(&class.parse().unwrap());
        assert_eq!((check("shop.order"), check("mail.send")), (Ok(()), Ok(())));
        for class in ["shop.orders", "mail", "exec", "email.send"] {
            assert!(check(class).unwrap_err().contains("may_queue"), "{class}");
        }
    }

    #[test]
    fn only_a_filter_by_this_parent_alone_selects_its_children() {
        let selects = |words: &[&str]| parent().selects_children(&Selection::parse(words).unwrap());
        assert!(selects(&["parent=7"]) && selects(&["parent=7", "status=success"]));
        for words in
            [&["parent=7", "parent=8"][..], &["parent=8"], &["status=due"], &["8", "parent=7"], &["last", "parent=7"]]
        {
            assert!(!selects(words), "{words:?}");
        }
    }
}
