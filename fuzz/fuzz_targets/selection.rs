#![no_main]

taskqueue_fuzz::target!(selection);
