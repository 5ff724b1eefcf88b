#![no_main]

taskqueue_fuzz::target!(web_form);
