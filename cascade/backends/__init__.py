"""Third-party models, one file each: the only place that imports them."""

from __future__ import annotations

import os
from typing import Final

TELEMETRY_OFF: Final = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime from 1.29 on: a device id on disk, and uploads of what runs how
    "PYANNOTE_METRICS_ENABLED": "0",  # pyannote.audio 4: durations and numbers of speakers
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}
"""What keeps libraries from reporting to their makers. They read it when they are imported, so it is set before."""

os.environ.update(TELEMETRY_OFF)
