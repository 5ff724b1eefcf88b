#!/bin/sh
# A sample handler in shell: computes the checksum of the file that the task names.
# Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
set -eu

# Use any program that reads JSON; Debian's perl includes one.
file=$(perl -MJSON::PP -0777 -e '
    my $data = eval { decode_json(<STDIN>) };
    my $file = ref $data eq "HASH" ? $data->{file} : undef;
    exit 1 unless defined $file && !ref $file && $file =~ m{^/};
    utf8::encode($file) if utf8::is_utf8($file);
    print $file') || {
    echo 'the data must be {"file":"/absolute/path"}' >&2
    exit 65 # bad data: a retry cannot help
}
[ -r "$file" ] || {
    echo "$file cannot be read yet" >&2
    exit 75 # retry later
}

bytes=$(wc -c <"$file")
# Write one JSON object per line to descriptor 3. `taskqueue report progress 50 "size known"` does the same.
echo '{"progress":50,"message":"size known"}' >&3
sum=$(sha256sum <"$file")
printf '{"progress":100}\n{"result":{"bytes":%d,"sha256":"%s"}}\n' "$bytes" "${sum%% *}" >&3
