// Does nothing, kept running as a coprocess.
'use strict';
const { serve } = require('../../handlers/taskqueue-handler.js');

serve(() => undefined, { inFlight: 64 });
