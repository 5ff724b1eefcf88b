//! The targets, with an example of every form that they accept.

use super::Target;

/// The name of each check, and its examples.
macro_rules! targets {
    ($($name:ident: [$($seed:expr),+ $(,)?];)+) => {
        /// All checks.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), check: super::$name, seeds: &[$($seed),+] }),+];
    };
}

targets! {
    batch_line: [
        r#"{"class":"mail.send","data":{"to":"ann@example.org"},"at":"tomorrow 03:00"}"#,
        r#"{"class":"a","in":"2h 30m","max_retries":3,"timeout":"90s","priority":-5,"by":"shop"}"#,
        r#"{"class":"a","name":"b","after":[1,"c",4711,"b"]}"#,
    ];
    class_name: ["mail.send\0mail.*", "a\\b:c-d_e\0?\\*:c-?_*", "exec"];
    clean: ["a\u{1b}[31mb\rc\u{9b}d\u{202e}e\u{7f}\tf\ng\u{2028}h \u{6f22}"];
    config: [
        "database = \"postgres://u:s3cr3t@h/d\"\nspool = \"/var/spool/tq\"\n[exec]\nenabled = true\n",
        "[class.\"mail.*\"]\nargv = [\"/bin/mail\", \"{class}\"]\ncwd = \"/\"\nenv = { A = \"1\" }\n\
         pass_env = [\"TZ\"]\ntimeout_secs = 60\nkill_grace_secs = 5\noutput_limit_bytes = 10\n\
         retry_delay_secs = 1\nretry_delay_max_secs = 9\nexit = { retry = [1, \"64-66\"], hold = [78] }\n",
    ];
    database_url: [
        "tasks.db",
        "sqlite:///var/lib/tasks.db",
        "postgres://u:p@[::1]:5432/d?sslmode=verify-full&sslpassword=x",
        "mariadb://u%40x:p%2f@h:3306/d?ssl_ca=/x",
        "ann\0d?connect_timeout=3",
        "postgres://u:p@s3cr3t@h/d#x?password=s3cr3t",
    ];
    environ: ["T=abc\u{1}A=1\0T=abcd\0T=abc\0", "T=ab\u{1}XT=ab\0T=a"];
    event: [
        "{\"progress\":40.5,\"message\":\"pass 2\"}\n{\"result\":{\"b\":1.50}}\n{\"heartbeat\":true}",
        r#"{"error":{"code":550,"message":"busy","retry":false,"delay":-1e300}}"#,
        r#"{"error":{"code":"smtp","delay":0.5},"result":[null,"\ud83d\ude00"]}"#,
    ];
    exec_data: [r#"{"argv":["/bin/echo","a b"],"cwd":"/tmp","env":{"A":"1","B_2":""}}"#];
    exit_codes: ["75", "64-66", " 0 - 255 ", "-1", "255-0"];
    identity: ["0f3c2f7e-1b9d-4c7a-8e57-8d4a1c9e2b30:4026531836:4711:987654"];
    json: [
        r#"{"a":[1,-0.5e-300,12345678901234567890123,null,true],"b":{"c":"\ud83d\ude00\\u0000"}}"#,
        r#"["\u0000","\ud800",1e999]"#,
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    ];
    outcome: [r#"{"database":"sqlite:///t.db","run_id":70,"task_id":7,"token":"abc","end":{"event":"fail","may_retry":true,"delay_secs":30,"backoff":{"base_secs":10,"max_secs":3600},"error_code":"exit:1","error_message":"no luck","decision":"x","handler":[4711,"y"],"percents_completed":40,"message":"half","results":"[1]","outputs":[{"stream":"stdout","content":"a\n","total_bytes":2,"is_lossy":false}],"hold":["here",300]}}"#,];
    selection: [
        "12 5-9 last class=mail.* status=failed by=ann error=exit:1 older=2d newer=1h30m",
        "schedule=7 schedule=12 key=order-17 key=a=b",
        "status=due 1-1",
    ];
    spool: ["{\"a\":1}\n{\"b\":2}\nhal", "\n\r\n\n"];
    stat: ["77 (a) R 1 (b) S 5 66 55 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3", "77 (a", "77 (a) S 1 2 3"];
    web_body: [
        "{\n \"class\": \"echo\",\r\n \"data\": {\"a\": \"x\\ny\"}\n}",
        r#"{"class":["mail.*"],"count":10,"wait_secs":50,"limit_key":"k","tag":"t","unique":"u","task":7}"#,
        r#"{"token":"abc","results":{"sent":[1.50,null]}}"#,
        r#"{"token":"abc","error":{"code":"smtp:451","message":"busy","retry":false,"delay_secs":-1}}"#,
        r#"{"token":"abc","percents":40,"message":"half"}"#,
        r#"{"token":"abc","reason":"shutdown","reject":false}"#,
    ];
    web_form: [
        "q=class%3Dmail.*+status%3Dfailed&agreed=0f3c",
        "status=failed",
        "reason=we+deploy%0d%0a",
        "updated_on=2026-11-21T10%3A00%3A00.5Z&run=7&event=9&priority=-3&due=tomorrow+03%3A00&data=%7B%22a%22%3A%0D%0A1%7D",
        "token=0f3c&to=%2Ftasks%3Fq%3Da",
        "token=0f3c&to=%2F%2Fevil.example",
        "scope=class&name=mail.send",
    ];
    web_host: [
        "localhost:8321\0http://localhost:8321",
        "queue.example.org\0https://queue.example.org",
        "[::1]:8321\0null",
        "127.0.0.1:8321\0http://evil.example",
        "\u{c5}\0http://",
    ];
    web_log: [
        "\u{1b}[1;31mno\u{1b}[0m <b>\n\u{1b}[38;5;31mx\u{1b}[38;2;1;2;3my\u{1b}[4mz",
        "a\u{1b}]8;;javascript:alert(1)\u{7}b\u{1b}[2J\u{202e}c\rd&amp;\"",
    ];
    web_query: [
        "q=class%3Da+%22two+words%22&before=7&limit=10",
        "task=7&kind=failed,retried&by=ann",
        "wait_secs=50",
        "run=12&attempt=2",
        "to=%2F%5Cevil.example",
    ];
    when: [
        "2026-11-21T12:30:00+02:00",
        "2026-11-21 12:30",
        "tomorrow 03:00",
        "+2h30m",
        "next friday 8pm",
        "last month",
        "1 april 2027",
        "3 days ago",
        "+1.5h",
        "last mon3 dXy",
        "tomorrow 8PM",
    ];
}
