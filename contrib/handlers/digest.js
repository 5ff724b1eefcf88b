#!/usr/bin/env node
// A sample handler in Node, for a process per run and for a coprocess: computes the checksum of a file.
// Data: {"file":"/absolute/path"}. Result: {"bytes":…,"sha256":"…"}.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs/promises');
const { serve, Failure } = require('./taskqueue-handler.js');

async function digest(task) {
  const file = task.data?.file;
  if (typeof file !== 'string' || !file.startsWith('/')) {
    throw new Failure('bad-data', 'the data must be {"file":"/absolute/path"}', { exitCode: 65 });
  }
  let content;
  try {
    content = await fs.readFile(file, { signal: task.signal });
  } catch (error) {
    throw new Failure('no-file', `${file} cannot be read yet: ${error.code}`, { exitCode: 75 });
  }
  task.progress(50, `${content.length} bytes read`);
  return { bytes: content.length, sha256: crypto.createHash('sha256').update(content).digest('hex') };
}

serve(digest, { inFlight: 8 });
