#![cfg_attr(fuzzing, no_main)]

taskqueue_fuzz::target!(database_url);
