#!/usr/bin/env php
<?php
// A sample handler in PHP: computes the checksum of the file that the task names.
// Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.

const BAD_DATA = 65;  // a retry cannot help
const TRY_LATER = 75;

$events = fopen('php://fd/3', 'w');

/** Writes one JSON object per line. */
function report(array $event): void
{
    global $events;
    fwrite($events, json_encode($event) . "\n");
}

function fail(int $code, string $message): never
{
    fwrite(STDERR, "$message\n");
    exit($code);
}

$data = json_decode(stream_get_contents(STDIN), true);
$file = is_array($data) ? ($data['file'] ?? null) : null;
if (!is_string($file) || !str_starts_with($file, '/')) {
    fail(BAD_DATA, 'the data must be {"file":"/absolute/path"}');
}
$input = is_file($file) ? @fopen($file, 'r') : false;
if ($input === false) {
    fail(TRY_LATER, "$file cannot be read yet");
}

$size = filesize($file);
$hash = hash_init('sha256');
$done = 0;
while (!feof($input)) {
    $chunk = fread($input, 1 << 20);
    hash_update($hash, $chunk);
    $done += strlen($chunk);
    report(['progress' => $size > 0 ? min(100, intdiv($done * 100, $size)) : 100, 'message' => "$done bytes read"]);
}
report(['result' => ['bytes' => $done, 'sha256' => hash_final($hash)]]);
