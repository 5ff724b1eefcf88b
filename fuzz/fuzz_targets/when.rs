#![no_main]

taskqueue_fuzz::target!(when);
