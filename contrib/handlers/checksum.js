#!/usr/bin/env node
// A sample handler in Node: computes the checksum of the file that the task names.
// Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');

const BAD_DATA = 65; // a retry cannot help
const TRY_LATER = 75;

// Writes one JSON object per line, without a buffer: buffered lines would be lost at the exit.
function report(event) {
  fs.writeSync(3, JSON.stringify(event) + '\n');
}

function fail(code, message) {
  fs.writeSync(2, message + '\n');
  process.exit(code);
}

function readTask() {
  let data = null;
  try {
    data = JSON.parse(fs.readFileSync(0, 'utf8'));
  } catch {
    // Reported below.
  }
  if (typeof data?.file !== 'string' || !data.file.startsWith('/')) {
    fail(BAD_DATA, 'the data must be {"file":"/absolute/path"}');
  }
  return data.file;
}

function open(file) {
  try {
    return fs.openSync(file, 'r');
  } catch (error) {
    return fail(TRY_LATER, `${file} cannot be read yet: ${error.code}`);
  }
}

const source = open(readTask());
const size = fs.fstatSync(source).size;
const hash = crypto.createHash('sha256');
const chunk = Buffer.alloc(1 << 20);
let done = 0;
for (let length; (length = fs.readSync(source, chunk)) > 0; ) {
  hash.update(chunk.subarray(0, length));
  done += length;
  report({ progress: Math.min(100, Math.floor((done * 100) / size)), message: `${done} bytes read` });
}
report({ progress: 100, result: { bytes: done, sha256: hash.digest('hex') } });
