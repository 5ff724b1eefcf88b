"""Does nothing, kept running as a coprocess."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "handlers"))

from taskqueue_handler import serve  # noqa: E402

serve(lambda task: None, in_flight=64)
