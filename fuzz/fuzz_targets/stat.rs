#![cfg_attr(fuzzing, no_main)]

taskqueue_fuzz::target!(stat);
