#![no_main]

taskqueue_fuzz::target!(database_url);
