"""From a configuration to a finished run, with resume; comparisons, studies, trackers, the Python API."""
