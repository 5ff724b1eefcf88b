#!/bin/sh
# A sample handler in shell: the checksum of the file that the task names.
# Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
set -eu

# Any program that reads JSON will do; Debian's perl brings one along.
file=$(perl -MJSON::PP -0777 -e '
    my $data = eval { decode_json(<STDIN>) };
    my $file = ref $data eq "HASH" ? $data->{file} : undef;
    exit 1 unless defined $file && !ref $file && $file =~ m{^/};
    utf8::encode($file) if utf8::is_utf8($file);
    print $file') || {
    echo 'the data must be {"file":"/absolute/path"}' >&2
    exit 65 # bad data: trying again cannot help
}
[ -r "$file" ] || {
    echo "$file cannot be read yet" >&2
    exit 75 # not now: try later
}

bytes=$(wc -c <"$file")
# Descriptor 3 takes one JSON object a line. `taskqueue progress 50 "size known"` would say the same.
echo '{"progress":50,"message":"size known"}' >&3
sum=$(sha256sum <"$file")
printf '{"progress":100}\n{"result":{"bytes":%d,"sha256":"%s"}}\n' "$bytes" "${sum%% *}" >&3
